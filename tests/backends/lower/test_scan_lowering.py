"""Loops: every combination of operands, directions, counts and sizes; one size of module for every T."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tolerances
from device import need

import lstm_ir as li
from lstm_ir.api import build
from lstm_ir.backends.run.devices import resolve

pytestmark = pytest.mark.slow_on("vulkan")
DEVICES = ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)]
LOOPS = {"kernels": False}
SIZES = [(0, 3), (1, 1), (11, 3), (32, 2), (33, 3), (100, 1)]


def recurrence(T: int | str, B: int | str, reverse: bool = False) -> li.Graph:
    """h = tanh(x w + h r), all rows and the last, I, H = 5, 7."""
    x, h0 = li.input("x", (T, B, 5)), li.input("h0", (B, 7))
    r = np.random.default_rng(3)
    w = li.weight("w", r.uniform(-0.5, 0.5, (5, 7)).astype("f4"))
    u = li.weight("u", r.uniform(-0.5, 0.5, (7, 7)).astype("f4"))

    def cell(h: li.Value, x: li.Value, w: li.Value, u: li.Value) -> tuple[li.Value, li.Value]:
        new = li.tanh(x @ w + h @ u)
        return new, new * 2

    h, ys = li.scan(cell, h0, x, (w, u), reverse=reverse)
    return li.Graph("recurrence", [x, h0], {"h": h, "ys": ys})


def arrays(T: int, B: int) -> dict[str, np.ndarray]:
    r = np.random.default_rng(T * 100 + B)
    x, h0 = r.uniform(-1, 1, (T, B, 5)), r.uniform(-1, 1, (B, 7))
    return {"x": x.astype("f4"), "h0": h0.astype("f4")}


def plain(x: np.ndarray, h: np.ndarray, reverse: bool) -> tuple[np.ndarray, np.ndarray]:
    """The same loop in NumPy."""
    r = np.random.default_rng(3)
    w, u = r.uniform(-0.5, 0.5, (5, 7)), r.uniform(-0.5, 0.5, (7, 7))
    w, u = w.astype("f4"), u.astype("f4")
    ys = np.zeros((*x.shape[:2], 7), "f4")
    for t in range(len(x))[:: -1 if reverse else 1]:
        h = np.tanh(x[t] @ w + h @ u)
        ys[t] = 2 * h
    return h, ys


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kernels", [True, False])
def test_named_sizes(device: str, kernels: bool) -> None:
    if device != "cpu":
        need(device)
    program = li.Program("p", {str(r): recurrence("T", "B", reverse=r) for r in (False, True)})
    exe = li.compile(program, device, options={"kernels": kernels})
    for T, B in SIZES:
        given = arrays(T, B)
        for reverse in (False, True):
            h, ys = plain(given["x"], given["h0"], reverse)
            got = exe.entries[str(reverse)](given)
            tolerances.agree(got["h"], h, tolerances.RECURRENCE, device)
            tolerances.agree(got["ys"], ys, tolerances.RECURRENCE, device)


def shapes_of_loops(T: int | str) -> dict[str, tuple[li.Graph, bool]]:
    """One graph per form; whether it takes x."""
    out: dict[str, tuple[li.Graph, bool]] = {}

    def put(name: str, ins: list[li.Value], outs: dict[str, li.Value]) -> None:
        out[name] = (li.Graph(name, ins, outs), True)

    x, n = li.input("x", (T, 3)), li.input("n", (), "i32")
    zero = li.zeros((3,))
    c, _ = li.scan(lambda c, _: (c * 0.5 + 1, None), zero, None, length=T)
    put("no_rows", [x, n], {"c": c})
    _, y = li.scan(lambda c, x: (None, x * 2), None, x)
    put("no_carries", [x, n], {"y": y})
    c, _ = li.scan(lambda c, x: (c + x, None), zero, x)
    put("no_results", [x, n], {"c": c})
    _, y = li.scan(lambda c, _, step: (c, c + li.convert(step, "f32")), zero, None, length=T, with_step=True)
    put("step", [x, n], {"y": y})
    count = li.minimum(n, li.size(T))
    for name, flags in (("fore", False), ("back", True), ("mixed", (True, False)), ("xedim", (False, True))):
        c, y = li.scan(lambda c, x: (c * 0.5 + x, c + x), zero, x, reverse=flags, count=count)
        put(f"count_{name}", [x, n], {"c": c, "y": y})
        c, y = li.scan(lambda c, x: (c * 0.5 + x, c + x), zero, x, reverse=flags)
        put(f"all_{name}", [x, n], {"c": c, "y": y})

    def outer(c: li.Value, x: li.Value) -> tuple[li.Value, li.Value]:
        inner, rows = li.scan(lambda d, v: (d * 0.5 + v, d), li.sum(c), x)
        return c * 0.5 + inner, rows

    c, y = li.scan(outer, zero, x)
    put("nested", [x, n], {"c": c, "y": y})
    k, _ = li.scan(lambda c, x: ((c[0] + 1, li.logical_not(c[1])), None), (li.constant(0), li.constant(True)), x)
    put("integers", [x, n], {"k": k[0], "odd": k[1]})
    return out


@pytest.mark.slow_cases(T=["T"], device=["cpu"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("T", [11, 0, "T"])
def test_forms(device: str, T: int | str) -> None:
    if device != "cpu":
        need(device)
    graphs = {k: g for k, (g, _) in shapes_of_loops(T).items()}
    exe = li.compile(li.Program("forms", graphs), device, options=LOOPS)
    for rows in (T,) if isinstance(T, int) else (0, 1, 11, 70):
        x = np.random.default_rng(rows).uniform(-1, 1, (rows, 3)).astype("f4")
        for count in {0, rows // 2, rows}:
            for name, g in graphs.items():
                given = {"x": x, "n": np.int32(count)}
                want, got = li.interpret(g, given), exe.entries[name](given)
                for k, w in want.items():
                    try:
                        tolerances.agree(got[k], w, tolerances.RECURRENCE, device)
                    except AssertionError as e:
                        raise AssertionError(f"{name}, {k}, T = {rows}, count {count}: {e}") from e


def test_a_count_outside_the_loop_is_refused() -> None:
    """A bound above T would make IREE write outside its tensors."""
    x, n = li.input("x", ("T", 3)), li.input("n", (), "i32")
    _, y = li.scan(lambda c, x: (c + x, c), li.zeros((3,)), x, count=n + 1)
    exe = li.compile(li.Graph("g", [x, n], {"y": y}), options=LOOPS)
    a = np.ones((5, 3), "f4")
    assert exe(x=a, n=np.int32(4))["y"][4, 0] == 4
    for bad in (5, 2_000_000, -2, -(2**31)):
        with pytest.raises(li.ValueRangeError, match="scan: count"):
            exe(x=a, n=np.int32(bad))


def test_module_and_compile_time_do_not_grow_with_time() -> None:
    seconds, sizes, texts = [], [], []
    for T in (100, 10_000):  # IREE writes out a loop that runs once, as one of 10 steps does
        graph = recurrence(T, 3)
        start = time.perf_counter()
        _, blob = build(graph, resolve("cpu"), {"cache": False, **LOOPS})
        seconds.append(time.perf_counter() - start)
        sizes.append(len(blob))
        texts.append(len(li.lower(graph)))
    assert abs(sizes[1] - sizes[0]) < 0.1 * sizes[0]
    assert abs(texts[1] - texts[0]) < 0.1 * texts[0]
    assert seconds[1] < 5 * seconds[0] + 1  # a copy of the body per step would take minutes


def test_run_time_is_linear() -> None:
    """Ten times the steps: a copy of the whole result per step would take a hundred times as long."""
    exe = li.compile(recurrence("T", "B"), options=LOOPS)
    seconds = []
    for T in (1000, 10_000):
        given = arrays(T, 2)
        exe(given)
        runs = []
        for _ in range(5):  # of processor time: other processes may take most of a second
            start = time.process_time()
            exe(given)
            runs.append(time.process_time() - start)
        seconds.append(min(runs))
    assert seconds[1] < 40 * seconds[0]

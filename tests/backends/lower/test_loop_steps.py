"""The loop without kernels takes several steps in an iteration.

Lengths around the steps of an iteration, 8, and around a chunk of 32 rows, held to the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import tolerances
from device import need

import lstm_ir as li
from lstm_ir.backends.lower.scan_packed import steps_at_once
from lstm_ir.backends.lower.tuned import STEPS
from lstm_ir.ir.loop import Loop

LOOPS = {"kernels": False}
LENGTHS = (0, 1, 7, 8, 9, 33, 100)
B, H = 2, 3
FORMS = {f"{c}_{r}": (c, r) for c, r in product(("all", "count"), ("fore", "back", "mixed"))}
DIRECTIONS: dict[str, Any] = {"fore": False, "back": True, "mixed": (True, False)}
Size = int | str


def graph(form: str, T: Size, rows: Size, gradients: bool) -> li.Graph:
    """A recurrence with two carries and rows, and what its gradients are."""
    counted, way = FORMS[form]
    x, s, w = li.input("x", (T, rows, H)), li.input("s", (rows, H)), li.input("w", (H, H))
    n = li.input("n", (), "i32")

    def step(c: Any, row: li.Value) -> Any:
        a = li.tanh(c[0] @ w + row)
        return (a, c[1] * 0.5 + a), a * c[1]

    (a, b), ys = li.scan(step, (s, s * 0.5), x, reverse=DIRECTIONS[way], count=n if counted == "count" else None)
    ins = [x, s, w, *([n] if counted == "count" else [])]
    if not gradients:
        return li.Graph(form, ins, {"a": a, "b": b, "ys": ys})
    loss = li.sum(a * b) + li.sum(ys * ys)
    return li.grad(li.Graph(form, ins, {"loss": loss}), "loss", ["x", "s", "w"])


def held(exe: Any, g: li.Graph, T: int, device: str) -> None:
    rng = np.random.default_rng(T)
    x, s = rng.uniform(-1, 1, (T, B, H)), rng.uniform(-1, 1, (B, H))
    w = rng.uniform(-0.6, 0.6, (H, H))
    given = {"x": x.astype("f4"), "s": s.astype("f4"), "w": w.astype("f4")}
    for count in sorted({0, T // 2, T}) if "n" in g.input_names else [None]:
        if count is not None:
            given["n"] = np.asarray(count, "i4")
        got, want = exe(given), li.interpret(g, given)
        for k, v in want.items():
            try:
                tolerances.agree(got[k], v, tolerances.RECURRENCE, device)
            except AssertionError as e:
                raise AssertionError(f"{g.name}, {k}, T = {T}, count {count}: {e}") from e


@cache
def named(device: str, gradients: bool, rows: Size) -> tuple[dict[str, li.Graph], Any]:
    graphs = {f: graph(f, "T", rows, gradients) for f in FORMS}
    return graphs, li.compile(li.Program("p", graphs), device, options=LOOPS)


@pytest.mark.slow_cases(T=[0])
@pytest.mark.parametrize("gradients", [False, True], ids=["forward", "gradients"])
@pytest.mark.parametrize("rows", [B, "B"])
@pytest.mark.parametrize("T", LENGTHS)
def test_named_sizes(T: int, rows: Size, gradients: bool) -> None:
    graphs, exe = named("cpu", gradients, rows)
    for form, g in graphs.items():
        held(exe.entries[form], g, T, "cpu")


@pytest.mark.slow_cases(gradients=[True])
@pytest.mark.parametrize("gradients", [False, True], ids=["forward", "gradients"])
def test_sizes_that_are_numbers(gradients: bool) -> None:
    forms = ("all_mixed", "count_back")
    graphs = {f"{f}_{T}": graph(f, T, B, gradients) for f in forms for T in LENGTHS}
    exe = li.compile(li.Program("p", graphs), options=LOOPS)
    for entry, g in graphs.items():
        held(exe.entries[entry], g, int(entry.rsplit("_", 1)[1]), "cpu")


@pytest.mark.slow_cases(gradients=[True])
@pytest.mark.vulkan
@pytest.mark.parametrize("gradients", [False, True], ids=["forward", "gradients"])
def test_named_sizes_vulkan(gradients: bool) -> None:
    need("vulkan")
    graphs, exe = named("vulkan", gradients, B)
    for (form, g), T in product(graphs.items(), (1, 9, 33)):
        held(exe.entries[form], g, T, "vulkan")


@pytest.mark.parametrize("kernels", [True, False])
def test_less_than_no_step_is_refused(kernels: bool) -> None:
    """A loop that holds no rows, so that no tensor has the size T - 4: it ran as many steps as T - 4 has left of 8."""
    x, h0 = li.input("x", ("T", H)), li.input("h0", (B, H))
    h, _ = li.scan(lambda h, _: (h + h, None), h0, None, length="T-4")
    g = li.Graph("g", [x, h0], {"h": h})
    loss = li.Graph("g", [x, h0], {"loss": li.sum(h)})
    start = np.full((B, H), 1.5, np.float32)
    with (
        li.compile(g, options={"kernels": kernels}) as exe,
        li.compile(li.grad(loss, "loss", ["h0"]), options={"kernels": kernels}) as back,
    ):
        for T in (4, 5, 9):
            given = {"x": np.zeros((T, H), np.float32), "h0": start}
            np.testing.assert_array_equal(exe(given)["h"], start * 2 ** (T - 4))
            np.testing.assert_array_equal(back(given)["d_h0"], np.full_like(start, 2 ** (T - 4)))
        calls: list[Callable[[dict[str, Any]], Any]] = [exe, back, partial(li.interpret, g)]
        for T, call in product((0, 3), calls):
            with pytest.raises(li.CallError, match=r"its number of steps, T-4, is below 0 \(T = "):
                call({"x": np.zeros((T, H), np.float32), "h0": start})


def _loop(T: Size, width: Size, body: Callable[[li.Value], li.Value]) -> Loop:
    x = li.input("x", (T, width))
    c, _ = li.scan(lambda c, row: (body(c) + row, None), li.zeros((width,)), x)
    return Loop(c.node)


def test_steps_of_an_iteration() -> None:
    def nested(c: li.Value) -> li.Value:
        d, _ = li.scan(lambda d, _: (d * 0.5, None), c, None, length=3)
        assert isinstance(d, li.Value)
        return d

    def long(c: li.Value) -> li.Value:
        for _ in range(60):
            c = c * 0.5 + 1
        return c

    assert steps_at_once(_loop(100, H, li.tanh)) == STEPS
    assert steps_at_once(_loop("T", H, li.tanh)) == STEPS
    assert steps_at_once(_loop("T", "B", li.tanh)) == 1
    assert steps_at_once(_loop(STEPS - 1, H, li.tanh)) == 1
    assert steps_at_once(_loop(100, 5_000_000, li.tanh)) == 1
    assert steps_at_once(_loop(100, H, nested)) == 1
    assert 1 <= steps_at_once(_loop(100, H, long)) < STEPS


def test_what_a_step_gives_behind_an_inner_loop() -> None:
    """What was made before it is written first: IREE moved the inner loop there, before what its body reads."""
    dt = "f64"
    x, a0, f = li.input("x", ("T", "B", 5), dt), li.input("a0", ("B", "S"), dt), li.input("f", ("B", "S"), dt)

    def cell(c: Any, row: li.Value, f: li.Value) -> Any:
        a, h = c
        s = li.sort(f, 1)
        u = li.cumsum(s, 1, reverse=True) * 0.25
        a = li.tanh(li.where(a > u, a, 0.3 * u))
        h = li.tanh(h + 0.5 * row) + 0.1 * li.tanh(li.softmax(s, 1)[:, :1])
        return (a, h), (a, h)

    (a, h), (ya, yh) = li.scan(cell, (a0, li.zeros(("B", 5), dt)), x, [f])
    loss = li.sum(li.tanh(a)) + li.sum(h * h) + li.sum(ya * ya) + li.sum(li.tanh(yh))
    made = li.grad(li.Graph("g", [x, a0, f], {"loss": loss}), "loss", ["x", "a0", "f"], remat=3)
    rng = np.random.default_rng(0)
    with li.compile(made) as exe:
        assert not [n for n in exe.report.notes if n.startswith("compiled ")]
        for T, B, S in ((7, 2, 4), (3, 3, 5), (1, 2, 1)):
            given = {n: rng.standard_normal(s) for n, s in (("x", (T, B, 5)), ("a0", (B, S)), ("f", (B, S)))}
            got = exe(given)
            for n, w in li.interpret(made, given).items():
                np.testing.assert_allclose(got[n], w, rtol=1e-11, atol=1e-12, err_msg=f"{n} {T} {B} {S}")

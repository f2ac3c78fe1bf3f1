"""Kernels against the interpreter: bodies over sizes that fill vectors and that do not."""

from __future__ import annotations

import re
import zlib
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kernel_bodies import BODIES, Loop
from kernel_checks import AVX2, BASELINE, TOLERANCE, compare
from kernel_random import random_body

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.errors import GradientError
from lstm_ir.ir.program import Program

SMALL = (11, 3, 5, 7)
WIDE = (4, 9, 16, 64)


def _seed(*words: object) -> int:
    return zlib.crc32(repr(words).encode())


SETS = [("f32", SMALL, BASELINE), ("f32", WIDE, "cpu"), ("f64", SMALL, AVX2)]


@cache
def compiled(dtype: str, sizes: tuple[Any, ...], target: str = "cpu") -> Any:
    """All bodies as entries of one program: (executable, loops, graphs)."""
    loops = {n: Loop(sizes, np.random.default_rng(_seed(n, sizes)), dtype) for n in BODIES}
    graphs = {n: loops[n].graph(n, BODIES[n]) for n in BODIES}
    exe = li.compile(Program("bodies", graphs), target)
    return exe, loops, graphs


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(("dtype", "sizes", "target"), SETS)
def test_static_sizes(name: str, dtype: str, sizes: tuple[int, ...], target: str) -> None:
    exe, loops, graphs = compiled(dtype, sizes, target)
    compare(exe, graphs[name], loops[name].arrays(graphs[name], *sizes[:2]), TOLERANCE[dtype])


@pytest.mark.slow_cases(name=["two_phases", "ends_in_product", "masked", "counted"])
@pytest.mark.parametrize("name", BODIES)
def test_named_sizes(name: str) -> None:
    exe, loops, graphs = compiled("f32", ("T", "B", 5, 23))
    for T, B in ((11, 3), (1, 1), (0, 2), (6, 17), (3, 7), (1, 20), (0, 16), (4, 5), (2, 9)):
        compare(exe, graphs[name], loops[name].arrays(graphs[name], T, B), TOLERANCE["f32"])


def test_every_body_becomes_a_kernel(kernels: bool) -> None:
    if not kernels:
        pytest.skip("kernels are off")
    exe, _, _ = compiled("f32", WIDE)
    notes = [n for n in exe.report.notes if n.startswith("scan at")]
    assert len(notes) >= len(BODIES)
    assert [n for n in notes if ": kernel, " not in n] == []
    assert "kernel_bodies.py:" in notes[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_narrow_weights_are_widened_in_registers(kind: str, kernels: bool) -> None:
    """As rounded weights in f32; the kernel reads 16 bits."""
    names, sizes = ("gated", "two_phases", "heads", "joined_rows"), ("T", "B", 16, 40)
    made: list[tuple[dict[str, Loop], dict[str, li.Graph]]] = []
    for rounded in (None, ml_dtypes.bfloat16 if kind == "bf16" else np.float16):
        loops = {n: Loop(sizes, np.random.default_rng(_seed(n))) for n in names}
        for loop in loops.values():
            loop.rounded = rounded
        made.append((loops, {n: loops[n].graph(n, BODIES[n]) for n in names}))
    (loops, graphs), (_, rounded_graphs) = made
    program, options = Program("narrow", graphs), {"pipeline": kind}
    exe = li.compile(program, options=options)
    for n in names:
        for T, B in ((5, 3), (4, 17)):
            arrays = loops[n].arrays(graphs[n], T, B)
            got, want = exe.entries[n](arrays), li.interpret(rounded_graphs[n], arrays)
            for k, w in want.items():
                np.testing.assert_allclose(got[k], w, rtol=2e-5, atol=2e-5, err_msg=f"{n} {k}")
    if kernels:
        text = prepare(program, resolve("cpu:x86-64-v3"), options).text
        weights = [m for m in re.findall(r"subspan .* -> memref<(\d+x\d+x\d+x\w+)>", text)]
        element = "i32" if kind == "bf16" else kind  # two bf16 in a word
        assert len([m for m in weights if m.endswith(f"x{element}")]) >= len(names)


def test_rows_that_do_not_exist_may_hold_nan() -> None:
    exe, loops, graphs = compiled("f32", SMALL, BASELINE)
    arrays = loops["masked"].arrays(graphs["masked"], *SMALL[:2])
    clean = exe.entries["masked"](arrays)
    for b, n in enumerate(arrays["n"]):
        arrays["x"][n:, b] = np.nan
    dirty = exe.entries["masked"](arrays)
    for k in clean:
        np.testing.assert_array_equal(clean[k], dirty[k])


def test_off_means_the_loop() -> None:
    loops = {n: Loop(SMALL, np.random.default_rng(5), "f64") for n in ("gated", "every_kind")}
    graphs = {n: loops[n].graph(n, BODIES[n]) for n in loops}
    exe = li.compile(Program("loops", graphs), options={"kernels": False})
    assert not any("kernel, " in n for n in exe.report.notes)
    for n, graph in graphs.items():
        compare(exe, graph, loops[n].arrays(graph, *SMALL[:2]), TOLERANCE["f64"])


def test_what_does_not_qualify_is_named(kernels: bool) -> None:
    x, h0 = li.input("x", (5, 3, 4), "f32"), li.input("h0", (3, 4), "f32")

    def cell(h: Any, x: Any) -> Any:
        h = li.cumsum(h, 1) * 0.1 + x
        return h, h

    h, ys = li.scan(cell, h0, x)
    graph = li.Graph("g", [x, h0], {"h": h, "ys": ys})
    exe = li.compile(graph)
    notes = [n for n in exe.report.notes if n.startswith("scan at")]
    if kernels:
        (note,) = notes
        assert ": loop, because" in note
        assert "`cumsum` at test_kernels.py:" in note
    rng = np.random.default_rng(1)
    arrays = {"x": rng.standard_normal((5, 3, 4)), "h0": rng.standard_normal((3, 4))}
    arrays = {k: v.astype(np.float32) for k, v in arrays.items()}
    want = li.interpret(graph, arrays)
    np.testing.assert_allclose(exe(arrays)["ys"], want["ys"], rtol=1e-5, atol=1e-5)


@pytest.mark.slow_cases(batch=[1, 2])
@pytest.mark.parametrize("batch", range(3))
def test_random_bodies(batch: int, seed: int, kernels: bool) -> None:
    """Eight random bodies per program; f64, so that only a wrong kernel differs."""
    loops, graphs = {}, {}
    sizes: Any = [(5, 3, 5, 7), ("T", "B", 3, 16), (4, 6, 2, 33)][batch]
    for i in range(8):
        loops[f"r{i}"] = Loop(sizes, np.random.default_rng(seed + i), "f64")
        graphs[f"r{i}"] = loops[f"r{i}"].graph(f"r{i}", random_body(seed + i))
    exe = li.compile(Program("random", graphs), (AVX2, "cpu", BASELINE)[batch])
    print("batch", batch, exe.report.notes)
    if kernels:
        assert all(": kernel, " in n for n in exe.report.notes if n.startswith("scan at"))
    calls = [(5, 3), (2, 1), (3, 13)] if batch == 1 else [((5, 3), (0, 0), (4, 6))[batch]]
    for name, graph in graphs.items():
        for T, B in calls:
            compare(exe, graph, loops[name].arrays(graph, T, B), 1e-10)


OF = ["f0", "y0"]


def matters(graph: li.Graph, name: str) -> bool:
    """Whether the outputs OF depend on it."""
    try:
        li.vjp(graph, OF, [name])
    except GradientError:
        return False
    return True


@pytest.mark.slow
def test_random_gradients(seed: int) -> None:
    """What the gradients of random bodies become: other phases, wider results, reverse loops."""
    loops, graphs = {}, {}
    for i in range(3):
        loops[f"g{i}"] = Loop(("T", "B", 3, 11), np.random.default_rng(seed + i), "f64")
        graph = loops[f"g{i}"].graph(f"g{i}", random_body(seed + i))
        floats = [p.node.attrs["name"] for p in graph.params if p.dtype.is_float]
        back = li.vjp(graph, OF, [n for n in (*floats, *graph.weights) if matters(graph, n)])
        outputs = dict(zip(back.output_names, back.outputs, strict=True))
        graphs[f"g{i}"] = li.Graph(f"g{i}", back.params, outputs)
    exe = li.compile(Program("gradients", graphs))
    print(exe.report.notes)
    for name, graph in graphs.items():
        for T, B in ((4, 5), (1, 2)):
            compare(exe, graph, loops[name].arrays(graph, T, B), 1e-10)

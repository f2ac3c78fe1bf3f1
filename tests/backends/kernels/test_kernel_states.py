"""Kernels of loops whose rows and columns stand anywhere, of matrices for each row, of draws that are fed back."""

from __future__ import annotations

import zlib
from functools import cache
from typing import Any

import numpy as np
import pytest
from kernel_bodies import Loop
from kernel_checks import AVX2, BASELINE, TOLERANCE, compare
from kernel_states import NO_GRADIENT, STATES, numpy_delta, numpy_memory, numpy_selective
from paths import DOCS

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.program import Program
from lstm_ir.passes.pipeline import Pipeline
from lstm_ir.passes.pipelines import NAMED

SMALL, WIDE = (7, 3, 5, 9), (4, 6, 16, 40)
FEW = ("states_last", "attention", "delta_rule", "generated")
SETS = [("f32", SMALL, BASELINE), ("f32", WIDE, "cpu"), ("f64", SMALL, AVX2)]


def arrays(loop: Loop, graph: li.Graph, T: int, B: int) -> dict[str, Any]:
    """As `Loop.arrays`; tokens lie in the table, and keys are any bits."""
    out = loop.arrays(graph, T, B)
    for name, low, high in (("token", 0, 13), ("key", 0, 1 << 32)):
        if name in out:
            out[name] = loop.rng.integers(low, high, out[name].shape).astype(out[name].dtype)
    return out


@cache
def compiled(dtype: str, sizes: tuple[Any, ...], target: str = "cpu", names: tuple[str, ...] = tuple(STATES)) -> Any:
    seeds = {n: zlib.crc32(repr((n, sizes)).encode()) for n in names}
    loops = {n: Loop(sizes, np.random.default_rng(seeds[n]), dtype) for n in names}
    graphs = {n: loops[n].graph(n, STATES[n]) for n in names}
    return li.compile(Program("states", graphs), target), loops, graphs


def all_kernels(notes: list[str]) -> None:
    found = [n for n in notes if n.startswith("scan at")]
    assert found
    assert [n for n in found if ": kernel, " not in n] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize(("dtype", "sizes", "target"), SETS)
def test_static_sizes(name: str, dtype: str, sizes: tuple[int, ...], target: str, kernels: bool) -> None:
    exe, loops, graphs = compiled(dtype, sizes, target)
    compare(exe, graphs[name], arrays(loops[name], graphs[name], *sizes[:2]), TOLERANCE[dtype])
    if kernels:
        all_kernels(exe.report.notes)


@pytest.mark.slow_cases(name=[n for n in STATES if n not in FEW])
@pytest.mark.parametrize("name", STATES)
def test_named_sizes(name: str, kernels: bool) -> None:
    exe, loops, graphs = compiled("f32", ("T", "B", 5, 23), names=FEW if name in FEW else tuple(STATES))
    for T, B in ((7, 3), (1, 1), (0, 2), (3, 17)):
        compare(exe, graphs[name], arrays(loops[name], graphs[name], T, B), TOLERANCE["f32"])
    if kernels:
        all_kernels(exe.report.notes)


# Bodies whose gradient has a StableHLO loop (docs/status.md).
LOOPS_BACK = ("unlike_rows",)


@pytest.mark.slow_cases(name=[n for n in STATES if n not in ("states_last", "rows_last")])
@pytest.mark.parametrize("name", [n for n in STATES if n not in NO_GRADIENT])
def test_gradients(name: str, kernels: bool, seed: int) -> None:
    loop = Loop(("T", "B", 5, 7), np.random.default_rng(seed), "f64")
    out = STATES[name](loop)
    loss = sum((li.sum(v * v) for v in out.values()), li.constant(0.0, "f64"))
    g = li.Graph(name, loop.inputs, {"loss": loss})
    floats = [p.node.attrs["name"] for p in g.params]
    both = li.grad(g, "loss", [*floats, *g.weights], missing="zeros")  # a body may leave a weight unread
    exe = li.compile(both)
    if kernels and name not in LOOPS_BACK:
        all_kernels(exe.report.notes)
    for T, B in ((5, 3), (1, 2)):
        given = arrays(loop, g, T, B)
        for k, w in li.interpret(both, given).items():
            bound = 1e-11 * max(1.0, np.abs(w).max(initial=0))
            np.testing.assert_allclose(exe(**given)[k], w, rtol=0, atol=bound, err_msg=f"{name} {k} {seed}")


@pytest.mark.parametrize("rows", [1, 4])
def test_equations_in_numpy(rows: int, seed: int) -> None:
    names = ("states_first", "many_states_first", "states_last", "matrix_memory", "delta_rule")
    sizes, rng = (6, rows, 5, 18), np.random.default_rng(seed)
    loops = {n: Loop(sizes, rng, "f64") for n in names}
    graphs = {n: loops[n].graph(n, STATES[n]) for n in names}
    exe = li.compile(Program("equations", graphs))
    for n in names:
        a = arrays(loops[n], graphs[n], *sizes[:2])
        got = exe.entries[n](a)
        if n == "delta_rule":
            y, last = numpy_delta(a, 2, 17)
        elif n == "matrix_memory":
            y, last = numpy_memory(a), None
        else:
            (decay,) = graphs[n].weights.values()
            y, last = numpy_selective(a, decay.node.attrs["value"].array.astype("f8"), n != "states_last")
        np.testing.assert_allclose(got["y"], y, rtol=1e-11, atol=1e-11, err_msg=f"{n} {seed}")
        if last is not None:
            np.testing.assert_allclose(got["last"], last, rtol=1e-11, atol=1e-11, err_msg=f"{n} {seed}")


def test_rows_last_need_the_pass() -> None:
    """The row of docs/passes.md: loops without a kernel, of a state [H,B] with its gradient."""
    loop = Loop(("T", "B", 5, 40), np.random.default_rng(1))
    out = STATES["rows_last"](loop)
    g = li.Graph("g", loop.inputs, {"loss": li.sum(out["ys"] * out["ys"])})
    both = li.grad(g, "loss", ["x", "h0"])
    without = ",".join(p.name for p in Pipeline.parse(NAMED["default"]).passes if p.name != "turn-bodies")
    counts = []
    for options in ({"pipeline": without}, {}):
        notes = prepare(both, resolve("cpu"), options).report.notes
        counts.append(len([n for n in notes if ": loop" in n]))
    what = "a state [H,B] with its gradient | loops without a kernel"
    row = f"| `turn-bodies` | {what} | {counts[0]} | {counts[1]} |"
    assert counts[0] > counts[1] == 0
    assert row in (DOCS / "passes.md").read_text(), row

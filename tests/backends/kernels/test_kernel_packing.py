"""Weights of one sweep are one tensor: a dispatch takes few, and each is packed by a dispatch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from iree_stream import stream
from kernel_checks import AVX2, BASELINE

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.kernels.body.planner import make_plan
from lstm_ir.backends.kernels.call.packing import grouped
from lstm_ir.backends.kernels.cpu.schedule import choose
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.interpret import interpret

SIZES = 6, 3, 5, 20


def _cotangents_of_all(cell: Any, gates: int) -> li.Graph:
    """The gradient at all results of a bidirectional layer, what it saves among them."""
    T, B, I, H = SIZES
    shapes = {"x": (T, B, I), "w_ih": (2, gates * H, I), "w_hh": (2, gates * H, H), "h0": (2, B, H)}
    values = {n: li.input(n, s) for n, s in shapes.items()}
    lengths = li.input("n", (B,), "i32")
    state = {"h0": values["h0"]}
    if gates == 4:
        state["c0"] = values["c0"] = li.input("c0", (2, B, H))
    x, w_ih, w_hh = (values[n] for n in ("x", "w_ih", "w_hh"))
    out = cell(x, w_ih, w_hh, **state, lengths=lengths, direction="bidirectional", save=True)
    outputs = {f"o{i}": v for i, v in enumerate(out)}
    g = li.Graph("all", [*values.values(), lengths], outputs)
    return li.vjp(g, list(outputs), list(values))


@pytest.mark.parametrize(("cell", "gates"), [(li.lstm, 4), (li.gru, 3)])
def test_the_gradient_at_all_results_is_a_kernel(cell: Any, gates: int) -> None:
    """With the weights of each gate in a tensor of their own it took too many of them."""
    graph = _cotangents_of_all(cell, gates)
    rng = np.random.default_rng(20261)
    given: dict[str, Any] = {}
    for name, v in zip(graph.input_names, graph.params, strict=True):
        shape = [int(str(d)) for d in v.type.shape]
        given[name] = (0.3 * rng.standard_normal(shape)).astype(np.float32)
    given["n"] = np.array([0, SIZES[0], 4], np.int32)
    want = interpret(graph, given)
    with li.compile(graph) as exe:
        assert [n for n in exe.report.notes if ": loop" in n] == []
        for name, got in exe(given).items():
            np.testing.assert_allclose(got, want[name], rtol=2e-5, atol=2e-5, err_msg=name)


def test_passes_over_as_many_gates_lie_in_one_tensor() -> None:
    """The products with x and h of an LSTM, and those of a GRU whose n has two sums."""
    for cell, gates in ((li.lstm, 4), (li.gru, 3)):
        x = li.input("x", (5, 8, 7))
        w = [li.input(f"w{i}", s) for i, s in enumerate(((gates * 20, 7), (gates * 20, 20)))]
        whole = li.Graph("one", [x, *w], {"y": cell(x, *w)[0]})
        (graph,) = prepare(whole, resolve("cpu")).optimized.entries.values()
        (scan,) = [n for n in graph.nodes if n.op.name == "scan"]
        (sweep,) = [s for c in make_plan(scan, False).components for s in c.sweeps]
        assert grouped(sweep.loops, together=True) == [[0, 1]]
        assert grouped(sweep.loops, together=False) == [[0], [1]]


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4", "aarch64"])
def test_rows_of_one_matrix_are_packed_by_one_dispatch(cpu: str) -> None:
    """The backward pass multiplies by each gate's rows of one matrix, one after the other."""
    x = li.input("x", (20, 12, 64))
    w = np.random.default_rng(3).standard_normal
    weights = [li.weight(f"w{i}", w((256, 64)).astype(np.float32)) for i in range(2)]
    y = li.lstm(x, weights[0], weights[1])[0]
    g = li.grad(li.Graph("l", [x], {"loss": li.sum(y * y)}), "loss", ["x"])
    before, _ = stream(g, f"cpu:{cpu}")
    packing = [n for n in before.splitlines() if "stream.cmd.dispatch @" in n and "transpose" in n]
    # There, w0 beside w1; back; d_x: but 64 columns in one block of 4 x 16 lanes are as they were.
    assert len(packing) == (1 if cpu == "x86-64-v4" else 3), packing


@pytest.mark.slow_cases(given=[True])
@pytest.mark.slow_cases(columns=[96])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("columns", [20, 70, 96])
@pytest.mark.parametrize("cell", [li.lstm, li.gru, li.rnn])
@pytest.mark.parametrize("target", [BASELINE, AVX2])
def test_vectors_that_a_tile_sums_lie_side_by_side(
    target: str, cell: Any, columns: int, given: bool, rng: np.random.Generator
) -> None:
    """With 16 registers a tile sums a part of a block: packed by IREE and by the kernel for weights that a call brings,
    with tiles of all heights, and rows of which none is whole."""
    gates = {li.lstm: 4, li.gru: 3, li.rnn: 1}[cell]
    x, shapes = li.input("x", ("T", "B", 7)), {"w": (gates * columns, 7), "r": (gates * columns, columns)}
    arrays = {n: (0.2 * rng.standard_normal(s)).astype(np.float32) for n, s in shapes.items()}
    w = [li.input(n, s) if given else li.weight(n, arrays[n]) for n, s in shapes.items()]
    graph = li.Graph("g", [x, *w] if given else [x], {"y": cell(x, *w)[0]})
    with li.compile(graph, target) as exe:
        for rows in (1, 2, 3, 4, 6, 9, 17):
            call = {"x": rng.standard_normal((5, rows, 7)).astype(np.float32), **(arrays if given else {})}
            np.testing.assert_allclose(
                exe(call)["y"], interpret(graph, call)["y"], rtol=2e-5, atol=2e-5, err_msg=str(rows)
            )


def test_what_lies_side_by_side() -> None:
    """Parts of a block hold the vectors that one loop over k reads; where a pass adds to some sums alone, all do."""
    for cell, gates, wanted in ((li.lstm, 4, 2), (li.gru, 3, 0), (li.rnn, 1, 2)):
        x = li.input("x", ("T", "B", 7))
        w = [li.input(f"w{i}", s) for i, s in enumerate(((gates * 96, 7), (gates * 96, 96)))]
        (graph,) = prepare(li.Graph("one", [x, *w], {"y": cell(x, *w)[0]}), resolve("cpu")).optimized.entries.values()
        (scan,) = [n for n in graph.nodes if n.op.name == "scan"]
        target = resolve("cpu:x86-64-v3").info
        schedule = choose(make_plan(scan, False), target)
        ((sweep, form),) = [(s, f) for s, f in schedule.forms.items() if s.dots]
        assert form.beside == wanted
        sums = len(sweep.dots)
        of = form.of(sweep.loops, sums)
        assert of.parts(sums) * of.vectors(sums) == form.q * sums
        wide = choose(make_plan(scan, False), resolve("cpu:x86-64-v4").info)
        assert {f.beside for f in wide.forms.values()} == {0}  # 32 registers hold the sums of a block

"""Sequence block ops become the loop of the core op: nothing foreign is left in a step."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tf_cases as tf

import lstm_ir as li
from lstm_ir.ir.graph import Node
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ops.core.lstm_grad import lstm_grad
from lstm_ir.passes.pipeline import for_target

I, C = 5, 7
FORWARD = ("i", "cs", "f", "o", "ci", "co", "h")
TARGETS = {"loop": None, "kernel": TargetInfo("cpu", "cpu", kernels=True)}


def loops(g: li.Graph, target: TargetInfo | None) -> list[Node]:
    """The loops of the scheduled graph."""
    scheduled = for_target(target).run(g, target).graph
    return [n for n in scheduled.nodes if n.op.name == "scan"]


def foreign(op: str, use_peephole: bool) -> li.Graph:
    """The block op, sizes named."""
    shapes = tf.shapes(op, "T", "B", I, C)
    arrays = tf.operands(np.random.default_rng(1), op, (4, 3, I, C))
    clip = {} if "Grad" in op else {"cell_clip": 3.0}
    return tf.graph(op, arrays, {"use_peephole": use_peephole} | clip, shapes, "foreign")


def inputs(**shapes: Any) -> dict[str, Any]:
    """Inputs by name; count is an i64."""
    return {n: li.input(n, s, "i64" if n == "count" else "f32") for n, s in shapes.items()}


LAYER: dict[str, Any] = {
    "x": ("T", "B", I), "w_ih": (1, 4 * C, I), "w_hh": (1, 4 * C, C), "b": (1, 4 * C),
    "h0": (1, "B", C), "c0": (1, "B", C), "peephole": (1, 3 * C), "count": (),
}  # fmt: skip


def core(op: str, use_peephole: bool) -> li.Graph:
    """`lstm` with the same features and results."""
    v = inputs(**LAYER)
    given = {n: w for n, w in v.items() if n != "peephole" or use_peephole}
    bias = 1.0 if op == tf.SEQ else 0.0
    out = li.lstm(**given, forget_bias=bias, cell_clip=3.0, clip_gradient="straight_through", save=True)
    gates = [out.gates[..., k * C : (k + 1) * C] for k in (0, 1, 3, 2)]  # i, f, o, ci
    results = (gates[0], out.cells, *gates[1:], out.activated, out.y)
    return li.Graph("core", list(v.values()), dict(zip(FORWARD, results, strict=True)))


def core_grad(op: str, use_peephole: bool) -> li.Graph:
    """`lstm_grad` with the same features and results."""
    rows = ("T", "B", C)
    saved = dict.fromkeys(("y", "i", "f", "ci", "o", "cells", "activated", "d_cells", "d_y"), rows)
    v = inputs(**LAYER, **saved)
    given = {n: w for n, w in v.items() if n not in ("i", "f", "ci", "o")}
    if not use_peephole:
        del given["peephole"]
    gates = li.concat([v[n] for n in ("i", "f", "ci", "o")], 2)
    out = lstm_grad(**given, gates=gates)
    return li.Graph("core", list(v.values()), {n: w for n, w in out._asdict().items() if w is not None})


PAIRS: dict[str, Callable[[str, bool], li.Graph]] = {
    tf.SEQ: core, tf.SEQ_V2: core, tf.SEQ_GRAD: core_grad, tf.SEQ_GRAD_V2: core_grad,
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("use_peephole", [False, True])
@pytest.mark.parametrize("op", PAIRS)
def test_the_loop_is_that_of_the_core_op(op: str, use_peephole: bool, target: str) -> None:
    """One loop, the same body to the letter, the same operands."""
    (a,) = loops(foreign(op, use_peephole), TARGETS[target])
    (b,) = loops(PAIRS[op](op, use_peephole), TARGETS[target])
    assert str(a.attrs["body"]) == str(b.attrs["body"])
    assert [v.type for v in a.inputs] == [v.type for v in b.inputs]
    assert a.attrs["reverse"] == b.attrs["reverse"]


@pytest.mark.parametrize("op", PAIRS)
def test_scheduled(op: str, golden: Callable[[str, str], None]) -> None:
    """The whole scheduled graph, to be read."""
    g = for_target(None).run(foreign(op, use_peephole=True), None).graph
    golden(f"tf_schedule/{op.removeprefix('tf.')}.lir", str(g))


def test_results_that_nobody_reads_cost_nothing() -> None:
    """A model that reads h alone stacks h alone: the same loop as `lstm` without save."""
    g = foreign(tf.SEQ_V2, use_peephole=False)
    (a,) = loops(li.Graph("g", g.params, {"h": g.output("h")}), None)
    v = {n: w for n, w in inputs(**LAYER).items() if n != "peephole"}
    y = li.lstm(**v, cell_clip=3.0).y
    (b,) = loops(li.Graph("core", list(v.values()), {"y": y}), None)
    assert str(a.attrs["body"]) == str(b.attrs["body"])

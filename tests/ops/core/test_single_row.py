"""Recurrences of a single row (B = 1): both directions in one kernel, forward and gradient.

With one row the row's axis looks like any other axis of size 1; a kernel's planner must not lose it.
"""

from functools import cache
from typing import Any

import layer_cases as cases
import numpy as np
import pytest

import lstm_ir as li

CASES = (
    "lstm bidirectional+lengths",
    "lstm bidirectional+count",
    "gru bidirectional+lengths+b_hn",
    "rnn bidirectional+lengths+hold",
    "lstm reverse+lengths",
)
T, B, I, H, P = 9, 1, 5, 7, 4


def graphs(case: str) -> tuple[li.Graph, li.Graph, dict[str, Any]]:
    op, name = case.split()
    operands, attrs = cases.build(op, name, np.float32, sizes=(T, B, I, H, P))
    graph = cases.graph(op, operands, attrs, dynamic=False)
    arrays = cases.arrays(operands)
    floats = [k for k, v in arrays.items() if v.dtype.kind == "f"]
    return (graph, li.vjp(graph, [k for k in ("y", "h_n", "c_n") if k in graph.output_names], floats), arrays)


@cache
def compiled() -> Any:
    entries = {}
    for i, case in enumerate(CASES):
        entries[f"forward{i}"], entries[f"gradient{i}"], _ = graphs(case)
    return li.compile(li.Program("rows", entries))


@pytest.mark.slow_cases(case=["lstm bidirectional+lengths", "lstm bidirectional+count"])
@pytest.mark.parametrize("part", ["forward", "gradient"])
@pytest.mark.parametrize("case", CASES)
def test_one_row(case: str, part: str) -> None:
    forward, gradient, arrays = graphs(case)
    if part == "gradient":
        rng = np.random.default_rng(len(case))
        shown = dict(zip(forward.output_names, forward.outputs, strict=True))
        for k in (k for k in ("y", "h_n", "c_n") if k in shown):
            v = shown[k]
            shape = [int(str(d)) for d in v.shape]
            arrays[f"ct_{k}"] = rng.normal(size=shape).astype(np.float32)
    graph = forward if part == "forward" else gradient
    got = compiled().entries[f"{part}{CASES.index(case)}"](arrays)
    for k, want in li.interpret(graph, arrays).items():
        worst = float(np.abs(got[k] - want).max(initial=0))
        assert worst <= 1e-5 * max(1.0, float(np.abs(want).max(initial=0))), (k, worst)


def test_kernels() -> None:
    notes = [n for n in compiled().report.notes if n.startswith("scan")]
    loops = [n for n in notes if ": kernel" not in n]
    assert len(notes) >= 2 * len(CASES)
    assert not loops, loops

"""Slices of slices, all of four elements: the ones that are empty too, at every place."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.passes.pipeline import Pipeline


def all_slices(size: int) -> list[tuple[int, int, int]]:
    return [(lo, hi, step) for lo in range(size + 1) for hi in range(lo, size + 1) for step in (1, 2, 3)]


@pytest.mark.parametrize("first", all_slices(4), ids=lambda s: f"{s[0]}to{s[1]}by{s[2]}")
def test_slice_of_slice(first: tuple[int, int, int]) -> None:
    array = np.arange(4, dtype=np.float32)
    part = array[slice(*first)]
    x = li.input("x", (4,))
    middle = x[slice(*first)]
    want = {f"from{lo}to{hi}by{step}": part[lo:hi:step] for lo, hi, step in all_slices(len(part))}
    graph = li.Graph(
        "slices", [x], {f"from{lo}to{hi}by{step}": middle[lo:hi:step] for lo, hi, step in all_slices(len(part))}
    )
    after = Pipeline.parse("canonicalize").run(graph).graph
    for name, got in li.interpret(after, {"x": array}).items():
        np.testing.assert_array_equal(got, want[name], err_msg=name)
    assert all(n.inputs[0].op != "slice" for n in after.nodes if n.op.name == "slice")

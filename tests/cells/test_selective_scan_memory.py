"""A selective scan's states of all steps, [T,B,D,N]: inference has no such tensor, a gradient without `remat` has one.

With it there are those with which segments begin, and those of one segment.

Counted in the module that the compiler is given, whose sizes are numbers.
"""

from __future__ import annotations

import math
import re

import pytest
from cell_gallery import cell, step

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve

T, B, I, H = 40, 3, 20, 48
N = 16  # states of a channel
STATES = T * B * H * N
TENSOR = re.compile(r"(?:tensor|memref)<((?:\d+x)+)f32")
WAYS = ("cpu:x86-64-v3", True), ("cpu:x86-64-v3", False), ("vulkan", False)


def tensors(graph: li.Graph, target: str, kernels: bool) -> dict[str, int]:
    """Elements of each type of a tensor in the module."""
    text = prepare(graph, resolve(target), {"kernels": kernels}).text
    return {d: math.prod(map(int, d.split("x")[:-1])) for d in TENSOR.findall(text)}


def scan(seed: int) -> li.Graph:
    graph: li.Graph = cell("selective_scan").build(T, B, I, H, seed=seed)
    return graph


@pytest.mark.parametrize(("target", "kernels"), WAYS)
def test_inference_keeps_no_states_of_all_steps(target: str, kernels: bool, seed: int) -> None:
    found = tensors(scan(seed), target, kernels)
    assert max(found.values()) < STATES
    assert any(n == T * B * H for n in found.values())  # the rows themselves are there
    decays = {d: n for d, n in found.items() if n >= T * B * H * 2}
    assert not decays  # no decays of all steps either


def test_a_gradient_keeps_states_once(seed: int) -> None:
    found = tensors(step(scan(seed)), *WAYS[0])
    assert max(found.values()) in (STATES, STATES + B * H * N)


def test_a_gradient_by_segments_keeps_those_of_one(seed: int) -> None:
    """40 steps in segments of 8: 5 states where they begin, 8 inside of one, and what the loop over segments carries.

    It is no kernel, so all it carries, twice, and its rows are one tensor: less than states of a third of the steps.
    """
    graph = scan(seed)
    y = graph.output("y")
    loss = li.Graph("loss", graph.params, {"loss": li.sum(y * y)})
    made = li.grad(loss, "loss", [*graph.input_names, *graph.weights], remat=8)
    assert max(tensors(made, *WAYS[0]).values()) < STATES // 3

"""The gradient of a convolution's weights in a loop: one sum over all steps, after the loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.loop import Loop
from lstm_ir.passes.pipeline import for_target

T, B, C = 4, 2, 3


def loss(steps: int | str, kind: str) -> li.Graph:
    """Of a loop that convolves its carry, and its row, with weights that it shares."""
    w, u = li.input("w", (C, C, 3), "f64"), li.input("u", (C, C, 2), "f64")
    x, h = li.input("x", (steps, B, C, 5), "f64"), li.input("h", (B, C, 5), "f64")
    given, more = [x, h, w, u], dict[str, Any]()
    if kind == "count":
        given.append(li.input("n", (), "i32"))
        more["count"] = given[-1]

    def cell(c: Any, row: Any) -> Any:
        wide = li.conv_transpose1d(row, u, padding=(1, 0))
        twice = li.concat([w, w], 1) if kind == "joined" else w
        seen = li.concat([c, row], 1) if kind == "joined" else c
        c = li.tanh(li.conv1d(seen, twice, padding=1) + wide)
        return c, c * row

    h_n, y = li.scan(cell, h, x, reverse=kind == "reverse", **more)
    return li.Graph("g", given, {"loss": li.sum(y * y) + li.sum(h_n)})


def loops(graph: Graph) -> list[Graph]:
    bodies = [loop.body for n in graph.nodes if (loop := Loop.of(n, until=True)) is not None]
    return bodies + [inner for body in bodies for inner in loops(body)]


@pytest.mark.parametrize("steps", [T, "T"])
@pytest.mark.parametrize("kind", ["plain", "joined", "reverse", "count"])
def test_no_step_sums_a_gradient_of_weights(kind: str, steps: int | str) -> None:
    graph = for_target(None).run(li.grad(loss(steps, kind), "loss", ["w", "u", "x", "h"]), None).graph
    assert [n for n in graph.nodes if n.op.name == "stencil_grad"]
    assert not [n for body in loops(graph) for n in body.nodes if n.op.name == "stencil_grad"]


@pytest.mark.parametrize("kind", ["plain", "joined", "reverse", "count"])
def test_finite_differences(kind: str, seed: int) -> None:
    forward = loss("T", kind)
    names = ["w", "u", "x", "h"]
    graph = li.grad(forward, "loss", names)
    r = np.random.default_rng(seed)
    given: dict[str, Any] = {
        n: 0.5 * r.standard_normal([T if d == "T" else d for d in map(_size, p.shape)])
        for n, p in zip(forward.input_names, forward.params, strict=True)
        if n != "n"
    }
    whole = {**given, **({"n": np.asarray(T - 1, "i4")} if kind == "count" else {})}
    found = li.interpret(graph, whole)
    for name in names:
        way = r.standard_normal(given[name].shape)
        ends = [li.interpret(forward, {**whole, name: given[name] + s * 1e-5 * way})["loss"] for s in (1, -1)]
        slope = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose((found[f"d_{name}"] * way).sum(), slope, rtol=1e-6, err_msg=f"seed {seed}: {name}")


def _size(d: Any) -> Any:
    return d if isinstance(d, int) else "T"

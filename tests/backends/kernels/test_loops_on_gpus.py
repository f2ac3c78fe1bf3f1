"""Loops of every kind of body, and their gradients, on a GPU beside the interpreter; kernels or not.

One of each kind by default; `-m slow` runs all, which a GPU's driver does in two minutes with 14 processes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import delta_cells
import kernel_bodies
import kernel_states
import matrix_cells
import meeting_bodies
import numpy as np
import pytest
import until_bodies
from device import need
from kernel_bodies import Loop
from kernel_random import random_body
from meeting_random import random_graph

import lstm_ir as li

Case = tuple[li.Graph, list[dict[str, Any]]]
GPUS = [pytest.param(g, marks=getattr(pytest.mark, g)) for g in ("vulkan", "cuda")]
CASES: dict[str, Callable[[np.random.Generator], Case]] = {}
FEW = ("body heads named", "state delta_rule numbers", "random 3", "meeting one_row", "until named", "matrix mlstm T")
# Of f64, which Vulkan does not have.
NO_CASE = ("doubles",)


def _body(body: kernel_bodies.Body, sizes: Any, calls: Any) -> Callable[[np.random.Generator], Case]:
    def made(rng: np.random.Generator) -> Case:
        loop = Loop(sizes, rng)
        graph = loop.graph("g", body)
        return graph, [loop.arrays(graph, T, B) for T, B in calls]

    return made


NAMED = ("T", "B", 12, 10), ((6, 3), (1, 4), (13, 17))
NUMBERS = (9, 5, 8, 16), ((9, 5),)
for _family, _bodies in (("body", kernel_bodies.BODIES), ("state", kernel_states.STATES)):
    for _name, _f in _bodies.items():
        CASES[f"{_family} {_name} numbers"] = _body(_f, *NUMBERS)
        if _name not in kernel_states.NO_GRADIENT:
            CASES[f"{_family} {_name} named"] = _body(_f, *NAMED)
for _k in range(24):
    CASES[f"random {_k}"] = _body(random_body(_k), *(NAMED, NUMBERS, ((6, 33, 5, 40), ((6, 33),)))[_k % 3])


def _meeting(build: Callable[[meeting_bodies.Sizes, str], li.Graph]) -> Callable[[np.random.Generator], Case]:
    def made(rng: np.random.Generator) -> Case:
        graph = build(meeting_bodies.Sizes(7, 5, 12), "f32")
        return graph, [meeting_bodies.draw(graph, rng, 7, 5)]

    return made


for _name, (_build, _) in meeting_bodies.BODIES.items():
    CASES[f"meeting {_name}"] = _meeting(_build)
for _k in range(12):
    CASES[f"meeting random {_k}"] = _meeting(partial(random_graph, _k, pairs=_k % 3 == 0))


def _until(build: Callable[[], li.Graph]) -> Callable[[np.random.Generator], Case]:
    def made(rng: np.random.Generator) -> Case:
        graph = build()
        return graph, [until_bodies.arrays(graph, rng) for _ in range(3)]

    return made


for _name, _graph in until_bodies.GRAPHS.items():
    if _name not in NO_CASE:
        CASES[f"until {_name}"] = _until(_graph)


def _matrix(name: str, T: Any) -> Callable[[np.random.Generator], Case]:
    def made(rng: np.random.Generator) -> Case:
        graph = matrix_cells.graph(name, T, "f32")
        calls = (5, 64, 70) if T == "T" else (T,)  # no whole chunk, whole ones alone, and both
        return graph, [matrix_cells.arrays(graph, n, int(rng.integers(1 << 30))) for n in calls]

    return made


for _name in matrix_cells.CELLS:
    for _T in (37, "T"):
        CASES[f"matrix {_name} {_T}"] = _matrix(_name, _T)


def _delta(name: str) -> Callable[[np.random.Generator], Case]:
    def made(rng: np.random.Generator) -> Case:
        graph = delta_cells.graph(name, 40, delta_cells.Sizes((2, 3), 8, 11), "f32")
        return graph, [delta_cells.arrays(graph, 40, int(rng.integers(1 << 30)))]

    return made


for _name in delta_cells.CELLS:
    CASES[f"delta {_name}"] = _delta(_name)


def gradient(graph: li.Graph) -> li.Graph:
    """Of a sum over all float results, by all that is float."""
    parts = [li.sum(li.tanh(v)) for v in graph.outputs if v.dtype.is_float]
    loss = parts[0]
    for p in parts[1:]:
        loss = loss + p
    made = li.Graph("g", graph.params, {"loss": loss})
    floats = [n for n, p in zip(graph.input_names, graph.params, strict=True) if p.dtype.is_float and n != "limit"]
    return li.grad(made, "loss", [*floats, *made.weights], missing="zeros")


def compare(target: str, graph: li.Graph, calls: list[dict[str, Any]]) -> None:
    with li.compile(graph, target) as exe:
        for given in calls:
            got = exe(given)
            for n, want in li.interpret(graph, given).items():
                assert got[n].shape == want.shape
                bound = 3e-5 * max(1.0, float(np.abs(want).max(initial=0)))
                np.testing.assert_allclose(got[n], want, rtol=0, atol=bound, err_msg=n)


NAMES = [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in CASES]


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("name", NAMES)
def test_results(name: str, target: str, seed: int) -> None:
    need(target)
    compare(target, *CASES[name](np.random.default_rng(seed)))


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("name", [n if n in FEW[:2] else pytest.param(n, marks=pytest.mark.slow) for n in CASES])
def test_gradients(name: str, target: str, seed: int) -> None:
    need(target)
    if any(word in name for word in kernel_states.NO_GRADIENT):
        pytest.skip("draws have no gradient")
    graph, calls = CASES[name](np.random.default_rng(seed))
    compare(target, gradient(graph), calls)

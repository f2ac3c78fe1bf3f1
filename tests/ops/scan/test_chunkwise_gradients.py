"""Gradients of matrix states by chunks beside torch's loop over the steps of each row (matrix_state_loops.py)."""

from __future__ import annotations

from itertools import product
from typing import Any

import matrix_state_loops as oracle
import numpy as np
import pytest
from device import need
from matrix_cells import arrays, graph

import lstm_ir as li
from lstm_ir.ir.carry_kinds import CarryKind, circles, loops_of
from lstm_ir.passes.base import Notes
from lstm_ir.passes.chunk_states import ChunkStates

WAYS = tuple(product((False, True), repeat=3))


def weights(graph: li.Graph, T: int, seed: int) -> list[Any]:
    """A number for each element of each result: what its gradient begins with."""
    rng = np.random.default_rng(seed + 1)
    return [rng.standard_normal([d if isinstance(d, int) else T for d in v.shape]) for v in graph.outputs]


def differentiated(g: li.Graph) -> li.Graph:
    """The sum of all results squared and weighed, and its gradients, by chunks of the forward loop."""
    g = ChunkStates(on="all").run(g, Notes())
    given = [li.input(f"weight{j}", v.shape, "f64") for j, v in enumerate(g.outputs)]
    total = li.constant(0, "f64")
    for v, w in zip(g.outputs, given, strict=True):
        total = total + li.sum(w * v * v)
    whole = li.Graph("g", [*g.params, *given], {"loss": total})
    return li.grad(whole, "loss", [n for n in g.input_names if n != "lengths"], missing="zeros")


def check(name: str, T: Any, steps: int, way: tuple[bool, bool, bool], seed: int) -> None:
    reverse, lengths, first = way
    g = graph(name, T, reverse=reverse, lengths=lengths, first=first)
    made = differentiated(g)
    kinds = [c.kind for x in loops_of(made) for c in circles(x) if not isinstance(T, str)]
    assert CarryKind.matrix not in kinds  # it went by chunks
    given = arrays(g, steps, seed)
    if lengths:
        given["lengths"][0] = 0 if seed % 2 else steps
    scales = weights(g, steps, seed)
    got = li.interpret(made, {**given, **{f"weight{j}": w for j, w in enumerate(scales)}})

    def weigh(j: int, out: Any) -> Any:
        import torch

        return torch.from_numpy(scales[j]) * out * out

    outs, slopes = oracle.run(name, given, weigh, reverse)
    total = np.sum([(w * out * out).sum() for w, out in zip(scales, outs, strict=True)])
    want = {"loss": total} | {f"d_{n}": a for n, a in slopes.items()}
    for n, a in want.items():
        assert got[n].shape == a.shape
        scale = 1 + np.abs(a).max(initial=0)
        np.testing.assert_allclose(got[n], a, rtol=0, atol=1e-12 * scale, err_msg=f"{n} {name} {way} seed {seed}")


@pytest.mark.parametrize(
    "way", WAYS, ids=lambda w: "-".join(("reverse", "lengths", "first")[i] for i in range(3) if w[i])
)
@pytest.mark.parametrize("name", oracle.STEPS)
def test_gradients_by_chunks_are_those_of_torch(name: str, way: tuple[bool, bool, bool], seed: int) -> None:
    """70 steps are two chunks of 35; 131, three chunks of 44 and a step that changes nothing."""
    need("torch")
    check(name, 70 if seed % 2 else 131, 70 if seed % 2 else 131, way, seed)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("steps", [5, 128, 135])
def test_gradients_of_a_named_number_of_steps_are_those_of_torch(steps: int, way: Any, seed: int) -> None:
    """Less than a chunk, whole chunks alone, and two chunks with seven steps left over."""
    need("torch")
    check("mamba2", "T", steps, way, seed)

"""Products over more than 16 leading indices are loops inside of the kernel: einsum's numbers, and no copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tolerances import RECURRENCE

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve

T, B = 4, 3
# Of each case: axes of the state with rows, of the matrix, and the product as einsum has it.
CASES: dict[str, tuple[tuple[Any, ...], tuple[int, ...], str]] = {
    "a_matrix_for_each": (("n", "B", 6), (6, 6), "nbi,nij->nbj"),
    "one_matrix_for_all": (("n", "B", 6), (6, 6), "nbi,ij->nbj"),
    "rows_first": (("B", "n", 6), (6, 6), "bni,nij->bnj"),
    "transposed": (("B", "n", 6), (6, 6), "bni,nji->bnj"),
    "between_the_indices": (("B", "n", 6), (), "bni,nm->bmi"),
}


def shapes(name: str, n: int) -> tuple[tuple[Any, ...], tuple[int, ...], str]:
    state, matrix, how = CASES[name]
    axes = how.split(",")[1].split("->")[0]
    sizes = (n, n) if axes == "nm" else (n, *matrix) if len(axes) == 3 else matrix
    return tuple(n if d == "n" else d for d in state), sizes, how


def graph(name: str, n: int, rows: Any, dtype: str, gradient: bool = False) -> li.Graph:
    """h = tanh(h M + x), all states, from an input."""
    state, matrix, how = shapes(name, n)
    state = tuple(rows if d == "B" else d for d in state)
    x, first, m = li.input("x", (T, *state), dtype), li.input("first", state, dtype), li.input("m", matrix, dtype)

    def cell(h: Any, row: Any) -> Any:
        h = li.tanh(li.einsum(how, h, m) + row)
        return h, h

    y = li.scan(cell, first, x)[1]
    made = li.Graph("g", [x, first, m], {"y": y, "loss": li.sum(y * y)})
    return li.grad(made, "loss", ["x", "first", "m"]) if gradient else made


def numpy_states(name: str, n: int, a: dict[str, Any]) -> Any:
    how, h, found = shapes(name, n)[2], a["first"], []
    for row in a["x"]:
        h = np.tanh(np.einsum(how, h, a["m"]) + row)
        found.append(h)
    return np.stack(found)


def arrays(name: str, n: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    state, matrix, _ = shapes(name, n)
    state = tuple(B if d == "B" else d for d in state)
    scale = 1 / np.sqrt(matrix[-1])
    return {
        k: s * rng.standard_normal(d) for k, d, s in (("x", (T, *state), 1), ("first", state, 1), ("m", matrix, scale))
    }


def loops(g: li.Graph) -> list[str]:
    return [n for n in prepare(g, resolve("cpu:x86-64-v3"), {"kernels": True}).report.notes if n.startswith("scan at")]


@pytest.mark.parametrize("rows", [B, "B"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_of_the_same_numbers(name: str, dtype: str, rows: Any, seed: int) -> None:
    n, g = 17, graph(name, 17, rows, dtype)
    assert all(": kernel" in note for note in loops(g)), loops(g)
    given = {k: a.astype(g.params[0].dtype.numpy) for k, a in arrays(name, n, seed).items()}
    want = numpy_states(name, n, {k: a.astype("f8") for k, a in given.items()})
    with li.compile(g) as exe:
        got = exe(given)["y"]
    assert np.abs(got - want).max() <= RECURRENCE[dtype, "cpu"]


@pytest.mark.parametrize("name", CASES)
def test_gradients_by_differences(name: str, seed: int) -> None:
    """Along a random direction, in f64."""
    n = 17
    g, given = graph(name, n, B, "f64", True), arrays(name, n, seed)
    rng, step = np.random.default_rng(seed + 1), 1e-6
    along = {k: rng.standard_normal(a.shape) for k, a in given.items()}

    def loss(by: float) -> float:
        return float((numpy_states(name, n, {k: a + by * along[k] for k, a in given.items()}) ** 2).sum())

    want = (loss(step) - loss(-step)) / (2 * step)
    with li.compile(g) as exe:
        got = exe(given)
    found = sum(float((got[f"d_{k}"] * a).sum()) for k, a in along.items())
    size = np.sqrt(sum(float((got[f"d_{k}"] ** 2).sum()) for k in along) * sum(a.size for a in along.values()))
    assert abs(found - want) <= 1e-8 * max(size, 1.0)


@pytest.mark.parametrize("name", CASES)
def test_code_does_not_grow_with_the_indices(name: str) -> None:
    made = [prepare(graph(name, n, B, "f32"), resolve("cpu:x86-64-v3"), {"kernels": True}).text for n in (48, 200)]
    few, many = (text.count("\n") for text in made)
    assert abs(few - many) <= 0.02 * few

"""Loops whose bodies read one value many times, and lengths that are arrays."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ir.carry_kinds import circles, loops_of
from lstm_ir.ops.scan.matrix_state import matrix_loop
from lstm_ir.ops.scan.tuned import CHUNK_STEPS, MIN_STATE
from lstm_ir.passes.base import Notes
from lstm_ir.passes.chunk_states import ChunkStates

Array = np.ndarray[Any, Any]
T, B, K, V, LEVELS = 2 * CHUNK_STEPS, 2, MIN_STATE, MIN_STATE, 40


def doubled(v: li.Value) -> li.Value:
    """v, by 40 sums of a value and itself: a tree of them has 2^40 leaves."""
    for _ in range(LEVELS):
        v = (v + v) * 0.5
    return v


def summed(v: li.Value) -> li.Value:
    v = v * 2.0**-LEVELS
    for _ in range(LEVELS):
        v = v + v
    return v


def squared(v: li.Value) -> li.Value:
    """v to the power of 2^40; of ones it is one."""
    for _ in range(LEVELS):
        v = v * v
    return v


def outer(key: li.Value, value: li.Value) -> li.Value:
    return li.expand_dims(key, 2) * li.expand_dims(value, 1)


def read(state: li.Value, key: li.Value) -> li.Value:
    return li.sum(state * li.expand_dims(key, 2), 1)


CELLS: dict[str, Any] = {
    "what is added": lambda s, k, v: s + summed(outer(k, v)),
    "a decay": lambda s, k, v: s * summed(li.full((B, K, V), 0.5)) + outer(k, v),
    "a decay of rows": lambda s, k, v: s * li.expand_dims(doubled(li.sum(k, 1, keepdims=True)), 2) + outer(k, v),
    "the state": lambda s, k, v: summed(s + outer(k, v)) * 0.5,
    "a product": lambda s, k, v: s * 0.5 + outer(k, v) * squared(li.full((B, K, V), 1.0)),
}
MEANING: dict[str, Any] = {
    "what is added": lambda s, k, v: s + k[:, :, None] * v[:, None],
    "a decay": lambda s, k, v: s * 0.5 + k[:, :, None] * v[:, None],
    "a decay of rows": lambda s, k, v: s * k.sum(1)[:, None, None] + k[:, :, None] * v[:, None],
    "the state": lambda s, k, v: (s + k[:, :, None] * v[:, None]) * 0.5,
    "a product": lambda s, k, v: s * 0.5 + k[:, :, None] * v[:, None],
}


def graph(name: str) -> li.Graph:
    k, v = (li.input(n, (T, B, d)) for n, d in (("k", K), ("v", V)))

    def cell(s: li.Value, x: tuple[li.Value, li.Value]) -> tuple[li.Value, li.Value]:
        new = CELLS[name](s, *x)
        return new, read(new, x[0])

    _, y = li.scan(cell, li.zeros((B, K, V)), (k, v))
    return li.Graph("g", [k, v], {"y": y, "loss": li.sum(y)})


def rows(name: str, a: dict[str, Array]) -> Array:
    """y by NumPy, step by step."""
    s, out = np.zeros((B, K, V)), []
    for key, value in zip(a["k"].astype("f8"), a["v"].astype("f8"), strict=True):
        s = MEANING[name](s, key, value)
        out.append((s * key[:, :, None]).sum(1))
    return np.stack(out)


@pytest.fixture
def given(rng: np.random.Generator) -> dict[str, Array]:
    return {n: (0.1 * rng.standard_normal((T, B, d))).astype(np.float32) for n, d in (("k", K), ("v", V))}


@pytest.mark.parametrize("name", CELLS)
def test_shared_values_are_looked_at_once(name: str, given: dict[str, Array]) -> None:
    """What looks for matrix states, and what makes them by chunks."""
    begin = time.perf_counter()
    g = graph(name)
    for loop in loops_of(g):
        circles(loop)
        matrix_loop(loop)
    made = ChunkStates(on="all").run(g, Notes())
    assert isinstance(made, li.Graph)
    assert time.perf_counter() - begin < 20
    np.testing.assert_allclose(li.interpret(made, given)["y"], rows(name, given), atol=1e-4)


@pytest.mark.parametrize("name", ["the state", "a decay of rows"])
def test_such_loops_compile_and_have_gradients(name: str, given: dict[str, Array]) -> None:
    g = graph(name)
    back = li.grad(g, "loss", ["k"])
    with li.compile(g) as exe, li.compile(back) as slopes:
        np.testing.assert_allclose(exe(given)["y"], rows(name, given), atol=1e-4)
        np.testing.assert_allclose(slopes(given)["d_k"], li.interpret(back, given)["d_k"], atol=1e-4)


@pytest.mark.parametrize("lengths", [np.array([2, 1], "i4"), np.array([2, 1], "i8"), [2, 1]])
def test_lengths_may_be_an_array(lengths: Any, rng: np.random.Generator) -> None:
    x = li.input("x", (3, 2, 4))
    last, y = li.scan(lambda h, row: (h + row, h + row), li.zeros((2, 4)), x, lengths=lengths)
    g = li.Graph("g", [x], {"last": last, "y": y})
    a = rng.standard_normal((3, 2, 4)).astype(np.float32)
    valid = np.arange(3)[:, None, None] < np.asarray(lengths)[:, None]
    sums = np.cumsum(a, 0)
    with li.compile(g) as exe:
        for out in (li.interpret(g, x=a), exe(x=a)):
            np.testing.assert_allclose(out["y"], np.where(valid, sums, 0), rtol=1e-5)
            np.testing.assert_allclose(out["last"], (a * valid).sum(0), rtol=1e-5, atol=1e-6)
    with pytest.raises(li.IRError, match="in_range: takes integers, got f32"):
        li.scan(lambda h, row: (h + row, h), li.zeros((2, 4)), x, lengths=np.array([2.0, 1.0], "f4"))

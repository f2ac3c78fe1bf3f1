"""Loops whose bodies read one value many times, and lengths that are arrays."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import lstm_ir as li

Array = np.ndarray[Any, Any]
B, K, V, LEVELS = 2, 8, 8, 40


def doubled(v: li.Value) -> li.Value:
    """v, by 40 sums of a value and itself: a tree of them has 2^40 leaves."""
    for _ in range(LEVELS):
        v = (v + v) * 0.5
    return v


def summed(v: li.Value) -> li.Value:
    for _ in range(LEVELS):
        v = v + v
    return v * 2.0**-LEVELS


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
    "a key": lambda s, k, v: s + outer(summed(k), v),
    "a decay": lambda s, k, v: s * summed(li.full((B, K, V), 0.5)) + outer(k, v),
    "a decay of rows": lambda s, k, v: s * li.expand_dims(doubled(li.sum(k, 1, keepdims=True)), 2) + outer(k, v),
    "the state": lambda s, k, v: summed(s + outer(k, v)) * 0.5,
    "a product": lambda s, k, v: s * 0.5 + outer(k, v) * squared(li.full((B, K, V), 1.0)),
    "an open product": lambda s, k, v: s * 0.5 + outer(k, v) * squared(li.expand_dims(k * 0.0 + 1.0, 2)),
}
MEANING: dict[str, Any] = {
    "what is added": lambda s, k, v: s + k[:, :, None] * v[:, None],
    "a key": lambda s, k, v: s + k[:, :, None] * v[:, None],
    "a decay": lambda s, k, v: s * 0.5 + k[:, :, None] * v[:, None],
    "a decay of rows": lambda s, k, v: s * k.sum(1)[:, None, None] + k[:, :, None] * v[:, None],
    "the state": lambda s, k, v: (s + k[:, :, None] * v[:, None]) * 0.5,
    "a product": lambda s, k, v: s * 0.5 + k[:, :, None] * v[:, None],
    "an open product": lambda s, k, v: s * 0.5 + k[:, :, None] * v[:, None],
}


@pytest.mark.parametrize("name", CELLS)
def test_shared_values_are_looked_at_once(name: str, rng: np.random.Generator) -> None:
    begin = time.perf_counter()
    k, v = (li.input(n, (6, B, d)) for n, d in (("k", K), ("v", V)))

    def cell(s: li.Value, x: tuple[li.Value, li.Value]) -> tuple[li.Value, li.Value]:
        new = CELLS[name](s, *x)
        return new, read(new, x[0])

    _, y = li.scan(cell, li.zeros((B, K, V)), (k, v))
    g = li.Graph("g", [k, v], {"y": y, "loss": li.sum(y)})
    back = li.grad(g, "loss", ["k"])
    a = {n: (0.3 * rng.standard_normal((6, B, d))).astype(np.float32) for n, d in (("k", K), ("v", V))}
    s, rows = np.zeros((B, K, V)), []
    for key, value in zip(a["k"].astype("f8"), a["v"].astype("f8"), strict=True):
        s = MEANING[name](s, key, value)
        rows.append((s * key[:, :, None]).sum(1))
    with li.compile(g) as exe, li.compile(back) as slopes:
        for out in (li.interpret(g, a), exe(a)):
            np.testing.assert_allclose(out["y"], np.stack(rows), atol=1e-5)
        want, got = li.interpret(back, a)["d_k"], slopes(a)["d_k"]
        np.testing.assert_allclose(got, want, atol=1e-4)
    assert time.perf_counter() - begin < 120


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

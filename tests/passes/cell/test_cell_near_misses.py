"""Loops that are nearly a cell of `fuse-cell`: each compiles, and gives what its equations say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.passes.pipeline import Pipeline

T, B, I, H = 5, 3, 4, 6
FUSE = Pipeline.parse("canonicalize,cse,fuse-cell,canonicalize,cse")
CELLS = ("lstm", "gru", "rnn")


def fused(graph: li.Graph) -> list[str]:
    """The cells that the pass finds."""
    return [n.op.name for n in FUSE.run(graph).graph.nodes if n.op.name in CELLS]


def mask(step: li.Value, ends: li.Value, like: li.Value, axis: int = 0) -> li.Value:
    """Whether a row still runs, for every element of `like`."""
    return li.broadcast_in_dim(li.broadcast_to(step, ends.shape) < ends, like.shape, (axis,))


@pytest.mark.parametrize("count", [0, 2, T])
def test_rows_held_past_their_length_are_zero_from_count_on(count: int, rng: np.random.Generator) -> None:
    w, r = (rng.uniform(-0.5, 0.5, s).astype("f4") for s in ((I, H), (H, H)))
    x, ends, n = li.input("x", (T, B, I)), li.input("ends", (B,), "i32"), li.input("n", (), "i32")

    def cell(h: li.Value, row: li.Value, step: li.Value) -> tuple[li.Value, li.Value]:
        new = li.tanh(row @ li.weight("w", w) + h @ li.weight("r", r))
        h = li.select(mask(step, ends, h), new, h)
        return h, h

    last, y = li.scan(cell, li.zeros((B, H)), x, count=n, with_step=True)
    graph = li.Graph("held", [x, ends, n], {"y": y, "last": last})
    assert fused(graph) == []
    a, lengths = rng.standard_normal((T, B, I)).astype("f4"), np.array([1, 4, 3], "i4")
    h, want = np.zeros((B, H)), np.zeros((T, B, H))
    for t in range(count):
        want[t] = h = np.where((t < lengths)[:, None], np.tanh(a[t] @ w + h @ r), h)
    with li.compile(graph) as exe:
        got = exe(x=a, ends=lengths, n=np.int32(count))
    np.testing.assert_allclose(got["y"], want, atol=2e-6)
    np.testing.assert_allclose(got["last"], h, atol=2e-6)


def test_a_reset_gate_that_is_the_second_half_of_a_sum(rng: np.random.Generator) -> None:
    named = {"wa": (I, 2 * H), "ra": (H, 2 * H), "rp": (H, 2 * H), "wn": (I, H), "wz": (I, H), "rz": (H, H)}
    held = {k: rng.uniform(-0.7, 0.7, s).astype("f4") for k, s in named.items()}
    wa, ra, rp, wn, wz, rz = (li.weight(k, a) for k, a in held.items())
    x = li.input("x", ("T", B, I))

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        q = li.logistic(row @ wa + h @ ra) * (h @ rp)
        z, n = li.logistic(row @ wz + h @ rz), li.tanh(row @ wn + q[:, H : 2 * H])
        h = z * h + (1.0 - z) * n
        return h, h

    _, y = li.scan(cell, li.zeros((B, H)), x)
    graph = li.Graph("halves", [x], {"y": y})
    assert fused(graph) == ["gru"]
    a, h = rng.standard_normal((T, B, I)).astype("f4"), np.zeros((B, H))
    want = np.zeros((T, B, H))
    for t in range(T):
        q = (1 / (1 + np.exp(-(a[t] @ held["wa"] + h @ held["ra"])))) * (h @ held["rp"])
        z = 1 / (1 + np.exp(-(a[t] @ held["wz"] + h @ held["rz"])))
        want[t] = h = z * h + (1 - z) * np.tanh(a[t] @ held["wn"] + q[:, H:])
    with li.compile(graph) as exe:
        np.testing.assert_allclose(exe(x=a)["y"], want, atol=3e-6)


@pytest.mark.parametrize("state", [(1, B, H), (H,)], ids=["a leading one", "no rows"])
def test_lengths_that_are_not_of_the_batch(state: tuple[int, ...], rng: np.random.Generator) -> None:
    """A length for the leading axis, or for every unit."""
    r = rng.uniform(-0.5, 0.5, (H, H)).astype("f4")
    x, ends = li.input("x", (T, *state)), li.input("ends", (state[0],), "i32")
    rows = (B, H) if len(state) > 1 else (1, H)

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        made = li.reshape(li.reshape(h, rows) @ li.weight("r", r), state)
        h = li.tanh(row + made)
        return h, h

    _, y = li.scan(cell, li.zeros(state), x, lengths=ends)
    graph = li.Graph("odd_lengths", [x, ends], {"y": y})
    assert fused(graph) == []
    a = rng.standard_normal((T, *state)).astype("f4")
    lengths = rng.integers(1, T + 1, (state[0],)).astype("i4")
    h, want = np.zeros(state), np.zeros((T, *state))
    for t in range(T):
        there = (t < lengths).reshape(-1, *[1] * (len(state) - 1))
        h = np.where(there, np.tanh(a[t] + (h.reshape(rows) @ r).reshape(state)), h)
        want[t] = np.where(there, h, 0)
    with li.compile(graph) as exe:
        np.testing.assert_allclose(exe(x=a, ends=lengths)["y"], want, atol=2e-6)


def test_a_loop_of_integers(rng: np.random.Generator) -> None:
    w, r = (rng.integers(-3, 4, s).astype("i4") for s in ((I, H), (H, H)))
    x = li.input("x", (T, B, I), "i32")

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        h = li.maximum(row @ li.weight("w", w) + h @ li.weight("r", r), 0)
        return h, h

    _, y = li.scan(cell, li.zeros((B, H), "i32"), x)
    a, h = rng.integers(-4, 5, (T, B, I)).astype("i4"), np.zeros((B, H), "i4")
    want: list[Any] = []
    for t in range(T):
        h = np.maximum(a[t] @ w + h @ r, 0)
        want.append(h)
    with li.compile(li.Graph("integers", [x], {"y": y})) as exe:
        np.testing.assert_array_equal(exe(x=a)["y"], np.stack(want))

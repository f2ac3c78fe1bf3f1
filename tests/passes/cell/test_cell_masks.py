"""`fuse-cell` where a mask that a program writes itself has bounds outside of 0 .. T."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.passes.pipeline import Pipeline

T, B, I, H = 4, 5, 3, 6
ENDS = np.array([1, 9, -2, 4, 0], np.int32)
BOUNDS: dict[str, Callable[[li.Value, li.Value], li.Value]] = {
    "computed": lambda n, off: n - off,
    "literal": lambda n, off: li.constant(ENDS),
    "given": lambda n, off: n,
}


@pytest.mark.parametrize("steps", ["T", T])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("bound", BOUNDS)
def test_bounds_outside_of_the_steps(bound: str, reverse: bool, steps: int | str, rng: np.random.Generator) -> None:
    w, u = (rng.uniform(-0.5, 0.5, s).astype(np.float32) for s in ((I, H), (H, H)))
    x, n, off = li.input("x", (steps, B, I)), li.input("n", (B,), "i32"), li.input("off", (B,), "i32")
    left = BOUNDS[bound](n, off)

    def cell(h: li.Value, row: li.Value, step: li.Value) -> tuple[li.Value, li.Value]:
        new = li.tanh(row @ li.weight("w", w) + h @ li.weight("u", u))
        time = li.dim(x, 0) - 1 - step if reverse else step
        h = li.select(li.broadcast_in_dim(li.broadcast_to(time, (B,)) < left, (B, H), (0,)), new, h)
        return h, h

    last, y = li.scan(cell, li.zeros((B, H)), x, reverse=reverse, with_step=True)
    graph = li.Graph("masked", [x, n, off], {"y": y, "last": last})
    after = Pipeline.parse("canonicalize,cse,fuse-cell").run(graph).graph
    assert [m.op.name for m in after.nodes if m.op.name in ("scan", "rnn")] == ["rnn"]

    a = rng.standard_normal((T, B, I)).astype(np.float32)
    less = np.zeros(B, np.int32) if bound == "given" else np.array([1, 0, 5, -4, 0], np.int32)
    h, want = np.zeros((B, H)), np.zeros((T, B, H))
    for t in range(T)[::-1] if reverse else range(T):
        h = np.where((t < ENDS)[:, None], np.tanh(a[t] @ w + h @ u), h)
        want[t] = h
    got = li.compile(graph)(x=a, n=ENDS + less, off=less)
    np.testing.assert_allclose(got["y"], want, atol=2e-6)
    np.testing.assert_allclose(got["last"], h, atol=2e-6)


def test_lengths_of_a_scan_are_not_held_twice() -> None:
    x, n = li.input("x", ("T", B, H)), li.input("n", (B,), "i32")
    u = li.weight("u", np.eye(H, dtype=np.float32))
    _, y = li.scan(lambda h, row: ((v := li.tanh(row + h @ u)), v), li.zeros((B, H)), x, lengths=n)
    after = Pipeline.parse("canonicalize,cse,fuse-cell").run(li.Graph("lengths", [x, n], {"y": y})).graph
    assert {m.op.name for m in after.nodes} >= {"rnn", "in_range"}
    assert "clamp" not in {m.op.name for m in after.nodes}

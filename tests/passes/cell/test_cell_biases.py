"""`fuse-cell` where a bias is a literal whose elements are all one number, however it is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.passes.pipeline import Pipeline

Array = np.ndarray[Any, Any]
FUSE = Pipeline.parse("canonicalize,cse,fuse-cell")
T, B, I, H = 4, 3, 5, 8
BIASES = [np.full(H, 0.5, np.float32), np.full((1, H), -0.5, np.float32), np.zeros(H, np.float32), np.float32(0.25)]


def arrays(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[Array]:
    return [rng.uniform(-0.5, 0.5, s).astype(np.float32) for s in shapes]


def fused(graph: li.Graph, op: str) -> li.Graph:
    after = FUSE.run(graph).graph
    assert [n.op.name for n in after.nodes if n.op.name in ("scan", "rnn", "gru", "lstm")] == [op]
    return after


def sigmoid(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))


@pytest.mark.parametrize("rows", ["B", B])
@pytest.mark.parametrize("bias", BIASES, ids=str)
def test_of_a_loop(bias: Array, rows: int | str, rng: np.random.Generator) -> None:
    a, w, u = arrays(rng, (T, B, I), (I, H), (H, H))
    x = li.input("x", ("T", rows, I))

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        h = li.tanh(row @ li.weight("w", w) + h @ li.weight("u", u) + bias)
        return h, h

    graph = li.Graph("rnn", [x], {"y": li.scan(cell, li.zeros((rows, H)), x)[1]})
    h, want = np.zeros((B, H)), []
    for row in a:
        h = np.tanh(row @ w + h @ u + bias)
        want.append(h)
    np.testing.assert_allclose(li.interpret(fused(graph, "rnn"), x=a)["y"], want, atol=2e-6)


@pytest.mark.parametrize("bias", BIASES, ids=str)
def test_inside_of_a_reset(bias: Array, rng: np.random.Generator) -> None:
    a, w, u = arrays(rng, (T, B, I), (I, 3 * H), (H, 3 * H))
    x = li.input("x", ("T", "B", I))

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        p, q = row @ li.weight("w", w), h @ li.weight("u", u)
        r, z = (li.sigmoid(p[:, k * H : (k + 1) * H] + q[:, k * H : (k + 1) * H]) for k in (0, 1))
        n = li.tanh(p[:, 2 * H :] + r * (q[:, 2 * H :] + bias))
        h = z * h + (1.0 - z) * n
        return h, h

    graph = li.Graph("gru", [x], {"y": li.scan(cell, li.zeros(("B", H)), x)[1]})
    h, want = np.zeros((B, H)), []
    for row in a:
        p, q = np.split(row @ w, 3, 1), np.split(h @ u, 3, 1)
        r, z = (sigmoid(p[k] + q[k]) for k in (0, 1))
        h = z * h + (1 - z) * np.tanh(p[2] + r * (q[2] + bias))
        want.append(h)
    np.testing.assert_allclose(li.interpret(fused(graph, "gru"), x=a)["y"], want, atol=2e-6)


@pytest.mark.parametrize("rows", ["B", B])
def test_of_a_step(rows: int | str, rng: np.random.Generator) -> None:
    given = dict(zip("xhcwu", arrays(rng, (B, I), (B, H), (B, H), (I, 4 * H), (H, 4 * H)), strict=True))
    bias = np.full(4 * H, 0.5, np.float32)
    x, h, c = (li.input(n, (rows, k)) for n, k in (("x", I), ("h", H), ("c", H)))
    gates = x @ li.weight("w", given["w"]) + h @ li.weight("u", given["u"]) + bias
    i, f, g, o = (gates[:, k * H : (k + 1) * H] for k in range(4))
    new = li.sigmoid(f) * c + li.sigmoid(i) * li.tanh(g)
    graph = li.Graph("step", [x, h, c], {"h": li.sigmoid(o) * li.tanh(new), "c": new})
    got = li.interpret(fused(graph, "lstm"), {k: given[k] for k in "xhc"})
    i_, f_, g_, o_ = np.split(given["x"] @ given["w"] + given["h"] @ given["u"] + bias, 4, 1)
    want = sigmoid(f_) * given["c"] + sigmoid(i_) * np.tanh(g_)
    np.testing.assert_allclose(got["c"], want, atol=2e-6)
    np.testing.assert_allclose(got["h"], sigmoid(o_) * np.tanh(want), atol=2e-6)

"""Random graphs in f64: shapes, dots, layers and loops in any order, values kept moderate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import lstm_ir as li

T, B, H = 4, 3, 2
ROW = (T, B, H)
Draw = Callable[..., Any]


class Grower:
    """Values so far, all f64[T,B,H] or rearranged from that; numbers for weights."""

    def __init__(self, draw: Draw, named: bool) -> None:
        self.draw = draw
        self.random = np.random.default_rng(draw(st.integers(0, 2**16)))
        self.sizes: tuple[Any, ...] = ("T", "B", H) if named else ROW
        self.x = li.input("x", self.sizes, "f64")
        self.pool: list[li.Value] = [self.x]
        self.weights = 0

    def pick(self) -> li.Value:
        return self.draw(st.sampled_from(self.pool))  # type: ignore[no-any-return]

    def weight(self, *shape: int) -> li.Value:
        self.weights += 1
        return li.weight(f"w{self.weights}", self.random.standard_normal(shape) / 2)

    def layer(self, rows: int) -> tuple[li.Value, ...]:
        return self.weight(rows * H, H), self.weight(rows * H, H), self.weight(rows * H)


def _unary(g: Grower) -> li.Value:
    f = g.draw(st.sampled_from([li.tanh, li.logistic, li.negate, li.abs, lambda v: v * 1.0, lambda v: v + 0.0]))
    return f(g.pick())  # type: ignore[no-any-return]


def _binary(g: Grower) -> li.Value:
    f = g.draw(st.sampled_from([li.add, li.subtract, li.maximum, lambda a, b: li.tanh(a * b)]))
    return f(g.pick(), g.pick())  # type: ignore[no-any-return]


def _moved(g: Grower) -> li.Value:
    order = g.draw(st.permutations(range(3)))
    v = li.transpose(g.pick(), order)
    v = li.tanh(v) if g.draw(st.booleans()) else v
    return li.transpose(v, [order.index(i) for i in range(3)])


def _flipped(g: Grower) -> li.Value:
    return li.reverse(g.pick(), g.draw(st.integers(0, 2)))


def _cut_and_joined(g: Grower) -> li.Value:
    a, b = g.pick(), g.pick()
    wide = li.concat([a, b], 2)
    start = g.draw(st.integers(0, H))
    return wide[:, :, start : start + H]


def _reshaped(g: Grower) -> li.Value:
    v = g.pick()
    flat = li.reshape(v, (v.shape[0] * v.shape[1], H))
    return li.reshape(li.tanh(flat) if g.draw(st.booleans()) else flat, v.shape)


def _dot(g: Grower) -> li.Value:
    w = g.weight(H, H)
    return li.tanh(g.pick() @ (w.T if g.draw(st.booleans()) else w) + g.weight(H))


def _reduced(g: Grower) -> li.Value:
    v = g.pick()
    return li.tanh(v - li.max(v, 2, keepdims=True)) + li.mean(v, 2, keepdims=True)


def _constants(g: Grower) -> li.Value:
    a, b = li.constant(g.random.standard_normal(H)), li.constant(2.0, "f64")
    return g.pick() * (a / b) + li.logistic(b)


def _layer(g: Grower) -> li.Value:
    way = g.draw(st.sampled_from(["forward", "reverse"]))
    kind = g.draw(st.sampled_from(["lstm", "gru", "rnn"]))
    batch = g.draw(st.booleans())
    v = li.swapaxes(g.pick(), 0, 1) if batch else g.pick()
    rows = {"lstm": 4, "gru": 3, "rnn": 1}[kind]
    y = getattr(li, kind)(v, *g.layer(rows), direction=way, layout="batch" if batch else "time")[0]
    return li.swapaxes(y, 0, 1) if batch else y


def _loop(g: Grower) -> li.Value:
    w, r, b = g.weight(H, H), g.weight(H, H), g.weight(H)
    form = g.draw(st.integers(0, 3))

    def cell(h: li.Value, x: li.Value, step: li.Value) -> Any:
        if form == 0:
            h = li.tanh(x @ w + h @ r + b)
        elif form == 1:
            h = li.tanh((x @ w) @ r + h * 0.5) + li.convert(step, "f64") * 0.0
        elif form == 2:
            z, n = li.logistic(x @ w + h @ r), li.tanh(x @ r + h @ w + b)
            h = n + z * (h - n)
        else:
            h = li.maximum(h * 0.5, li.tanh(x @ li.tanh(w) + x @ r))
        return h, li.tanh(h) if form == 3 else h

    first = li.zeros((g.x.shape[1], H), "f64")
    _, y = li.scan(cell, first, g.pick(), reverse=g.draw(st.booleans()), with_step=True)
    return y  # type: ignore[no-any-return]


GROW = [
    _unary, _binary, _moved, _flipped, _cut_and_joined, _reshaped, _dot, _reduced, _constants,
    _layer, _loop,
]  # fmt: skip


@st.composite
def graphs(draw: Draw) -> tuple[li.Graph, dict[str, np.ndarray[Any, Any]]]:
    """A graph of up to ten steps, and its inputs."""
    g = Grower(draw, draw(st.booleans()))
    for grow in draw(st.lists(st.sampled_from(GROW), min_size=1, max_size=10)):
        g.pool.append(grow(g))
    outputs = {"last": g.pool[-1], "any": g.pick()}
    return li.Graph("random", [g.x], outputs), {"x": g.random.standard_normal(ROW)}

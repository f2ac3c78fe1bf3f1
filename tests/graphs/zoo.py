"""Graphs that every pass, target and file format is tried on, with inputs.

Sizes T, B, I, H = 11, 3, 5, 7.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import lstm_ir as li

T, B, I, H = 11, 3, 5, 7
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Animal:
    """A graph and values for its inputs."""

    name: str
    graph: li.Graph
    inputs: dict[str, Array]

    def __repr__(self) -> str:
        return self.name


Maker = Callable[["Keeper"], tuple[dict[str, li.Value], dict[str, Array]]]
ZOO: dict[str, Maker] = {}


class Keeper:
    """Weights and values from a generator seeded by the animal's name."""

    def __init__(self, name: str) -> None:
        self.random = np.random.default_rng(zlib.crc32(name.encode()))

    def array(self, *shape: int) -> Array:
        """Normal values, f32."""
        return self.random.standard_normal(shape).astype(np.float32)

    def weight(self, name: str, *shape: int) -> li.Value:
        """A named weight, scaled as layers are."""
        return li.weight(name, self.array(*shape) / np.float32(np.sqrt(shape[-1])))

    def layer(self, name: str, rows: int, width: int, hidden: int, directions: int = 1) -> tuple[li.Value, ...]:
        """w_ih, w_hh, b of a layer with `rows` rows of gates."""
        lead = () if directions == 1 else (directions,)
        return (
            self.weight(f"{name}/w_ih", *lead, rows * hidden, width),
            self.weight(f"{name}/w_hh", *lead, rows * hidden, hidden),
            self.weight(f"{name}/b", *lead, rows * hidden),
        )


def animal(make: Maker) -> Maker:
    """Register a graph under its function's name."""
    ZOO[make.__name__] = make
    return make


def get(name: str) -> Animal:
    """The animal called `name`."""
    outputs, inputs = ZOO[name](Keeper(name))
    params = _params(outputs)
    return Animal(name, li.Graph(name, [params[n] for n in inputs], outputs), inputs)


def _params(outputs: dict[str, li.Value]) -> dict[str, li.Value]:
    from lstm_ir.ir.graph import topological

    nodes = topological(v.node for v in outputs.values())
    return {n.attrs["name"]: n.values[0] for n in nodes if n.op.name == "parameter"}


@animal
def cell_step(k: Keeper) -> Any:
    """One LSTM step written with primitives."""
    x, h, c = li.input("x", (B, I)), li.input("h", (B, H)), li.input("c", (B, H))
    w, r, b = k.layer("cell", 4, I, H)
    z = x @ w.T + h @ r.T + b
    i, f, g, o = (z[:, n * H : (n + 1) * H] for n in range(4))
    new = li.logistic(f) * c + li.logistic(i) * li.tanh(g)
    outputs = {"h_n": li.logistic(o) * li.tanh(new), "c_n": new}
    return outputs, {"x": k.array(B, I), "h": k.array(B, H), "c": k.array(B, H)}


@animal
def tagger(k: Keeper) -> Any:
    """Two bidirectional layers with named T and B, then softmax."""
    x = li.input("x", ("T", "B", I))
    y, _, _ = li.lstm(x, *k.layer("one", 4, I, H, 2), direction="bidirectional")
    y, h, _ = li.lstm(y, *k.layer("two", 4, 2 * H, H, 2), direction="bidirectional")
    return {"p": li.softmax(y @ k.weight("out", 2 * H, 4)), "h_n": h}, {"x": k.array(T, B, I)}


@animal
def batch_major(k: Keeper) -> Any:
    """Two layers over [B,T,..] with arithmetic between them."""
    x = li.input("x", ("B", "T", I))
    y, _, _ = li.lstm(x, *k.layer("one", 4, I, H), layout="batch")
    y = li.tanh(y) * k.weight("scale", H) + 1.0
    y, _ = li.gru(y, *k.layer("two", 3, H, H), layout="batch")
    return {"y": y @ k.weight("out", H, 2)}, {"x": k.array(B, T, I)}


@animal
def two_ways(k: Keeper) -> Any:
    """A forward and a reverse layer over one x, joined: a bidirectional one in other systems."""
    x = li.input("x", ("T", "B", I))
    f, hf, _ = li.lstm(x, *k.layer("f", 4, I, H))
    r, hr, _ = li.lstm(li.reverse(x, 0), *k.layer("r", 4, I, H))
    return {"y": li.concat([f, li.reverse(r, 0)], 2), "h": li.concat([hf, hr], 0)}, {"x": k.array(T, B, I)}


@animal
def gru_lengths(k: Keeper) -> Any:
    """A GRU whose rows end early, one at once."""
    x, n = li.input("x", ("T", "B", I)), li.input("lengths", ("B",), "i32")
    y, h = li.gru(x, *k.layer("gru", 3, I, H), b_hn=k.weight("b_hn", H), lengths=n)
    return {"y": y, "h": h}, {"x": k.array(T, B, I), "lengths": np.array([T, 0, 4], np.int32)}


@animal
def layer_norm_cell(k: Keeper) -> Any:
    """An LSTM with normalised gates: a cell that no op knows."""
    x = li.input("x", ("T", "B", I))
    w, r, b = k.layer("cell", 4, I, H)
    gain = k.weight("gain", 4 * H)

    def norm(v: li.Value) -> li.Value:
        centred = v - li.mean(v, 1, keepdims=True)
        return centred * li.rsqrt(li.mean(centred * centred, 1, keepdims=True) + 1e-5)

    def cell(carry: Any, row: li.Value) -> Any:
        h, c = carry
        z = norm(row @ w.T + h @ r.T) * gain + b
        i, f, g, o = (z[:, n * H : (n + 1) * H] for n in range(4))
        c = li.logistic(f) * c + li.logistic(i) * li.tanh(g)
        h = li.logistic(o) * li.tanh(c)
        return (h, c), h

    zero = li.zeros(("B", H))
    (_, c), y = li.scan(cell, (zero, zero), x)
    return {"y": y, "c": c}, {"x": k.array(T, B, I)}


@animal
def four_dots(k: Keeper) -> Any:
    """A loop with two dots for each gate, run in reverse with lengths."""
    x, n = li.input("x", ("T", "B", I)), li.input("lengths", ("B",), "i32")
    w = {g: (k.weight(f"w{g}", I, H), k.weight(f"r{g}", H, H), k.weight(f"b{g}", H)) for g in "ifgo"}

    def cell(carry: Any, row: li.Value) -> Any:
        h, c = carry
        i, f, g, o = (row @ w[g][0] + h @ w[g][1] + w[g][2] for g in "ifgo")
        c = li.logistic(f) * c + li.logistic(i) * li.tanh(g)
        h = li.tanh(c) * li.logistic(o)
        return (h, c), h

    zero = li.zeros(("B", H))
    (h, c), y = li.scan(cell, (zero, zero), x, reverse=True, lengths=n)
    return {"y": y, "h": h, "c": c}, {"x": k.array(T, B, I), "lengths": np.array([4, T, 0], np.int32)}


@animal
def counted(k: Keeper) -> Any:
    """Only the first `count` steps of a reverse loop exist; the step number is read."""
    x, n = li.input("x", (T, B, I)), li.input("count", (), "i32")
    w, r = k.weight("w", I, H), k.weight("r", H, H)

    def cell(h: li.Value, row: li.Value, step: li.Value) -> Any:
        late = li.convert(step, "f32") * 0.125
        h = li.tanh((row * late) @ w + h @ r)
        return h, h

    h, y = li.scan(cell, li.zeros((B, H)), x, reverse=True, count=n, with_step=True)
    return {"y": y, "h": h}, {"x": k.array(T, B, I), "count": np.array(6, np.int32)}


@animal
def nested(k: Keeper) -> Any:
    """A loop over sentences around a loop over words, sharing a weight."""
    x = li.input("x", (4, "T", B, I))
    w, r, b = k.layer("inner", 1, I, H)

    def word(h: li.Value, row: li.Value) -> Any:
        h = li.tanh(row @ w.T + h @ r.T + b)
        return h, None

    def sentence(s: li.Value, words: li.Value) -> Any:
        h, _ = li.scan(word, li.zeros((B, H)), words)
        s = li.tanh(h + s @ r.T)
        return s, s

    s, y = li.scan(sentence, li.zeros((B, H)), x)
    return {"s": s, "y": y}, {"x": k.array(4, T, B, I)}


@animal
def shared(k: Keeper) -> Any:
    """One weight in two layers, one value as two outputs, repeated expressions."""
    x = li.input("x", (T, B, H))
    w, r, b = k.layer("tied", 1, H, H)
    y, h = li.rnn(x, w, r, b)
    z, _ = li.rnn(y + 0.0, w, r, b)
    twice = li.tanh(z) + li.tanh(z)
    return {"twice": twice, "same": twice, "y": y, "h": h}, {"x": k.array(T, B, H)}


@animal
def projected(k: Keeper) -> Any:
    """Peepholes, projection, clip and saved results."""
    x = li.input("x", (T, B, I))
    out = li.lstm(
        x, k.weight("w", 4 * H, I), k.weight("r", 4 * H, 2), k.weight("b", 4 * H),
        w_hr=k.weight("p", 2, H), peephole=k.weight("peep", 3 * H), cell_clip=0.5, save=True,
    )  # fmt: skip
    return dict(zip(("y", "h", "c", "gates", "cells", "act"), out, strict=True)), {"x": k.array(T, B, I)}


@animal
def wide_dots(k: Keeper) -> Any:
    """Dots over one x, with matrices in several layouts."""
    x, m = li.input("x", ("T", "B", I)), li.input("m", (I, 3))
    parts = [x @ k.weight("a", I, H), x @ k.weight("b", I, 2), x @ k.weight("c", 4, I).T, x @ m]
    return {"y": li.concat(parts, 2), "first": parts[0]}, {"x": k.array(T, B, I), "m": k.array(I, 3)}


@animal
def shapes(k: Keeper) -> Any:
    """Transposes, reshapes, slices and joins that mostly undo each other."""
    x = li.input("x", (B, 4, I))
    y = li.transpose(li.transpose(x, (1, 0, 2)), (1, 2, 0))
    z = li.reshape(li.reshape(y, (4 * I, B)), (4, I, B))
    parts = li.concat([z[:2], z[2:], li.negate(-z[:1])], 0)
    u = parts[1:4] * 1.0 + li.select(li.constant(True), z[1:4], z[:3])
    v = li.reverse(li.reverse(li.pad(u, (0, 1, 0), (0, 0, 0)), 0), 0)
    return {"u": u, "v": v[:, :, :2]}, {"x": k.array(B, 4, I)}


@animal
def integers(k: Keeper) -> Any:
    """Embeddings, masks and sizes: i32 and i1 values."""
    ids, table = li.input("ids", ("T", "B"), "i32"), k.weight("table", 13, I)
    x = li.take(table, ids)
    keep = li.broadcast_in_dim(li.greater(ids, 0), x.shape, (0, 1))
    total = li.convert(li.dim(ids, 0) * 2 - 1, "f32")
    y, h = li.rnn(li.select(keep, x, li.constant(0.0)) / total, *k.layer("rnn", 1, I, H), activations=("relu",))
    return {"y": y, "h": h}, {"ids": k.random.integers(0, 13, (T, B)).astype(np.int32)}


@animal
def half(k: Keeper) -> Any:
    """f16 inside, f32 around: conversions that lose and some that do not."""
    x = li.input("x", (T, B, I))
    y = li.convert(x, "f16")
    z = li.convert(li.convert(y, "f32"), "f16") + li.convert(li.convert(y, "f64"), "f16")
    return {"z": li.convert(z, "f32"), "y": li.convert(li.convert(x, "f16"), "f32")}, {"x": k.array(T, B, I)}


@animal
def trained(k: Keeper) -> Any:
    """The loss of a bidirectional layer and a written cell, and its gradients."""
    x = li.input("x", ("T", "B", I))
    y, _, _ = li.lstm(x, *k.layer("one", 4, I, H, 2), direction="bidirectional")
    w, r, b = k.layer("two", 1, 2 * H, H)
    h, _ = li.scan(lambda h, row: (li.tanh(row @ w.T + h @ r.T + b), None), li.zeros(("B", H)), y)
    graph = li.Graph("loss", [x], {"loss": li.sum(h * h)})
    made = li.grad(graph, "loss", list(graph.weights))
    return dict(zip(made.output_names, made.outputs, strict=True)), {"x": k.array(T, B, I)}


@animal
def branches(k: Keeper) -> Any:
    """Several layers reading one another's states; results that nothing reads."""
    x = li.input("x", (T, "B", I))
    y, h, c = li.lstm(x, *k.layer("a", 4, I, H))
    w, r, b = k.layer("b", 4, I, H)
    z, h2, _ = li.lstm(x, w, r, b, h, c, direction="reverse")
    return {"y": li.max(y, 0) + li.max(z, 0), "h": h2}, {"x": k.array(T, B, I)}

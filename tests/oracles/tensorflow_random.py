"""Random modules of TensorFlow 2 over rows x [B,T,C]: loops of all kinds, Keras' cells, lists, windows, moves of data.

It imports TensorFlow: only processes of its own may import it (tensorflow_models.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from choices import Choices
from tensorflow_models import Record

tf.get_logger().setLevel("ERROR")  # it counts functions that are traced again
Rng = np.random.Generator
Part = Callable[[Any], Any]


class Draw(Choices):
    """What is drawn for one module: its words and variables."""

    def __init__(self, rng: Rng) -> None:
        super().__init__(rng)
        self.variables: dict[str, Any] = {}
        self.layers: list[Any] = []

    def weight(self, *shape: int) -> Any:
        name = f"w{len(self.variables)}"
        self.variables[name] = tf.Variable(self.rng.normal(0, 0.4, shape).astype(np.float32), name=name)
        return self.variables[name]


def _step(d: Draw, c: int, n: int) -> Callable[[Any, Any], Any]:
    """One step of a cell: the next state of h [B,n] from a row [B,c]."""
    kind = d.of(["tanh", "gated", "sum"])
    d.words[-1] += f" {kind}"
    if kind == "gated":
        w, u, b = d.weight(c, 3 * n), d.weight(n, 2 * n), d.weight(3 * n)

        def gated(row: Any, h: Any) -> Any:
            z, r, new = tf.split(row @ w + b, 3, -1)
            uz, ur = tf.split(h @ u, 2, -1)
            z, r = tf.sigmoid(z + uz), tf.sigmoid(r + ur)
            return z * h + (1.0 - z) * tf.tanh(new + r * h)

        return gated
    w, b = d.weight(c, n), d.weight(n)
    if kind == "sum":
        return lambda row, h: 0.5 * h + tf.nn.softsign(row @ w) * b
    u = d.weight(n, n)
    return lambda row, h: tf.tanh(row @ w + h @ u + b)


def _while(d: Draw, c: int) -> tuple[Part, int]:
    """A while loop that reads rows at places and writes a TensorArray, forwards or backwards."""
    n, back, listed, last = d.of([2, 3, 4]), d.chance(), d.chance(), d.chance(0.3)
    d.words.append(f"while {n}{' back' * back}{' from a list' * listed}{' last' * last}")
    step = _step(d, c, n)

    def part(x: Any) -> Any:
        rows = tf.transpose(x, (1, 0, 2))
        steps = tf.shape(rows)[0]
        given = tf.TensorArray(tf.float32, steps).unstack(rows) if listed else rows

        def body(t: Any, h: Any, ys: Any) -> Any:
            at = steps - 1 - t if back else t
            h = step(given.read(at) if listed else given[at], h)
            return t + 1, h, ys.write(at, h)

        start = (tf.constant(0), tf.zeros((tf.shape(rows)[1], n)), tf.TensorArray(tf.float32, steps))
        _, h, ys = tf.while_loop(lambda t, *_: t < steps, body, start)
        ys = tf.transpose(ys.stack(), (1, 0, 2))
        return ys * tf.sigmoid(h)[:, None] if last else ys

    return part, n


def _over_rows(d: Draw, c: int) -> tuple[Part, int]:
    """tf.scan over rows, or tf.map_fn."""
    mapped, n = d.chance(0.3), d.of([2, 3])
    d.words.append("map_fn" if mapped else f"scan {n}")
    if mapped:
        w = d.weight(c, n)
        return lambda x: tf.transpose(tf.map_fn(lambda r: tf.nn.elu(r @ w), tf.transpose(x, (1, 0, 2))), (1, 0, 2)), n
    step, back = _step(d, c, n), d.chance(0.3)
    d.words[-1] += " back" * back

    def part(x: Any) -> Any:
        start = tf.zeros((tf.shape(x)[0], n))
        ys = tf.scan(lambda h, row: step(row, h), tf.transpose(x, (1, 0, 2)), start, reverse=back)
        return tf.transpose(ys, (1, 0, 2))

    return part, n


def _rounds(d: Draw, c: int) -> tuple[Part, int]:
    """A loop of a known number of rounds over all rows, within a loop over time or alone."""
    rounds, inner = int(d.rng.integers(1, 4)), d.chance(0.4)
    d.words.append(f"{rounds} rounds{' in a loop' * inner}")
    w, b = d.weight(c, c), d.weight(c)

    def again(x: Any) -> Any:
        found = tf.while_loop(lambda k, v: k < rounds, lambda k, v: (k + 1, tf.tanh(v @ w + b)), (tf.constant(0), x))
        return found[1]

    def part(x: Any) -> Any:
        if not inner:
            return again(x)
        ys = tf.scan(lambda h, row: again(row + 0.5 * h), tf.transpose(x, (1, 0, 2)), tf.zeros_like(x[:, 0]))
        return tf.transpose(ys, (1, 0, 2))

    return part, c


def _layer(d: Draw, c: int) -> tuple[Part, int]:
    """Recurrent layers and cells of Keras."""
    n, L = d.of([2, 3, 4]), keras.layers
    kind = d.of(["LSTM", "GRU", "SimpleRNN"])
    way = d.of(["layer", "back", "both", "cells", "masked", "stacked"])
    d.words.append(f"{kind} {n} {way}")
    made = getattr(L, kind)
    if way == "cells":  # by hand in a loop of rows
        cell = _kept(d, getattr(L, f"{kind}Cell")(n), c)

        def part(x: Any) -> Any:
            h = [tf.zeros((tf.shape(x)[0], n))] * (2 if kind == "LSTM" else 1)
            ys, steps = tf.TensorArray(tf.float32, tf.shape(x)[1]), tf.shape(x)[1]

            def body(t: Any, h: Any, ys: Any) -> Any:
                y, h = cell(x[:, t], h)
                return t + 1, h, ys.write(t, y)

            ys = tf.while_loop(lambda t, *_: t < steps, body, (tf.constant(0), h, ys))[2]
            return tf.transpose(ys.stack(), (1, 0, 2))

        return part, n
    if way == "stacked":
        layer = L.RNN([getattr(L, f"{kind}Cell")(n), L.GRUCell(3)], return_sequences=True)
        return _kept(d, layer, None, c), 3
    layer = made(n, return_sequences=True, go_backwards=way == "back")
    if way == "both":
        return _kept(d, L.Bidirectional(layer), None, c), 2 * n
    kept = _kept(d, layer, None, c)
    if way == "masked":
        return lambda x: kept(x, mask=tf.reduce_mean(x, 2) > -0.3), n
    return kept, n


def _kept(d: Draw, layer: Any, *shape: int | None) -> Any:
    layer.build((None, *shape))
    for v in layer.trainable_weights:
        v.assign(v + d.rng.normal(0, 0.2, v.shape).astype(np.float32))
        d.variables[v.path] = v.value
    d.layers.append(layer)
    return layer


def _conv(d: Draw, c: int) -> tuple[Part, int]:
    n, wide, dilation = d.of([2, 4]), d.of([1, 2, 3]), d.of([1, 1, 2])
    d.words.append(f"conv1d {wide} /{dilation}")
    w, ahead = d.weight(wide, c, n), (wide - 1) * dilation
    return lambda x: tf.nn.conv1d(tf.pad(x, [[0, 0], [ahead, 0], [0, 0]]), w, 1, "VALID", dilations=dilation), n


def _dense(d: Draw, c: int) -> tuple[Part, int]:
    n, f = d.of([2, 3, 4]), d.of([tf.tanh, tf.nn.softplus, tf.nn.silu, tf.nn.gelu, tf.nn.selu, tf.nn.log_softmax])
    d.words.append(f"dense {n} {f.__name__}")
    w, b, contracted = d.weight(c, n), d.weight(n), d.chance()
    return (lambda x: f(tf.tensordot(x, w, 1) + b)) if contracted else (lambda x: f(x @ w + b)), n


def _norm(x: Any) -> Any:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, None, None, 0.3)


def _attention(x: Any) -> Any:
    scores = tf.matmul(x, x, transpose_b=True) / 2.0
    steps = tf.range(tf.shape(x)[1])
    return tf.nn.softmax(tf.where(steps[:, None] >= steps[None], scores, -1e9)) @ x


def _branch(x: Any) -> Any:
    return tf.cond(tf.reduce_sum(x) > 0.1, lambda: x * 1.5, lambda: tf.tanh(x))


def _shifted(x: Any) -> Any:
    return x + tf.concat([tf.zeros_like(x[:, :1]), x[:, :-1]], 1)


PLAIN: dict[str, Part] = {
    "norm": _norm, "attention": _attention, "cond": _branch, "shifted": _shifted,
    "reverse": lambda x: tf.reverse(x, [1]),
    "cumsum": lambda x: 0.3 * tf.cumsum(x, 1),
    "softmax over time": lambda x: x * tf.nn.softmax(x, 1),
    "halves": lambda x: tf.concat([x[..., x.shape[2] // 2 :], x[..., : x.shape[2] // 2]], -1),
    "gather": lambda x: tf.gather(x, [0, *range(x.shape[2] - 1)], axis=2),
    "einsum": lambda x: x + 0.1 * tf.einsum("btc,bsc->btc", x, x),
    "where": lambda x: tf.where(x > 0.1, x, 0.3 * x - 1.0),
    "lengths": lambda x: tf.reverse_sequence(x, tf.ones_like(x[:, 0, 0], tf.int32) * tf.shape(x)[1], 1, 0),
    "one_hot": lambda x: x + tf.one_hot(tf.argmax(x, -1), x.shape[2]),
    "l2": lambda x: tf.math.l2_normalize(x + 0.2, -1, epsilon=1e-2),
    "reshape": lambda x: tf.reshape(tf.tanh(tf.reshape(x, (-1, x.shape[2]))), tf.shape(x)),
    "stacked": lambda x: tf.reduce_sum(tf.stack([x, tf.square(x), tf.exp(-x * x)], 2), 2),
    "unstacked": lambda x: tf.stack([tf.sin(v) for v in tf.unstack(x, axis=2)], axis=2),
    "tiled": lambda x: tf.reduce_mean(tf.reshape(tf.tile(x, [1, 1, 2]), (tf.shape(x)[0], -1, 2, x.shape[2])), 2),
    "squared": lambda x: tf.math.squared_difference(x, tf.reduce_mean(x, 1, keepdims=True)),
}  # fmt: skip


def _plain(d: Draw, c: int) -> tuple[Part, int]:
    name = d.of(list(PLAIN))
    d.words.append(name)
    return PLAIN[name], c


MAKERS = (_while, _while, _over_rows, _rounds, _layer, _layer, _layer, _conv, _dense, _plain, _plain, _plain)


SHAPES = ((3, 7), (2, 5), (4, 2), (1, 6), (2, 1))  # rows and steps of calls


def random_model(record: Record) -> None:
    """A drawn module, saved; what it gives at three sizes, and the gradients of the first."""
    d, run, width = drawn(record.rng)
    record.words = d.words
    module = tf.Module()
    module.held = [list(d.variables.values()), d.layers]
    spec = tf.TensorSpec((None, None, width), tf.float32, name="x")
    function = tf.function(run, [spec], autograph=False)  # which reads sources, and writes warnings about lambdas
    tf.saved_model.save(module, str(record.path), signatures={"serving_default": function})
    first, *others = (SHAPES[k] for k in record.rng.permutation(len(SHAPES))[:3])
    for k, shape in enumerate(others):
        x = record.normal(*shape, width)
        record.keep("more", {f"{k}/x": x, **{f"{k}/{n}": v for n, v in run_once(function, x).items()}})
    x = tf.constant(record.normal(*first, width))
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = function(x)
        cts = record.cotangents({n: v.numpy() for n, v in outputs.items()})
        loss = sum(tf.reduce_sum(outputs[n] * c) for n, c in cts.items())
    wrt = {"x": x, **d.variables}
    found = tape.gradient(loss, list(wrt.values()), unconnected_gradients="zero")
    record.inputs(x=x.numpy())
    record.outputs({n: v.numpy() for n, v in outputs.items()})
    record.keep("grad", {n: tf.convert_to_tensor(g).numpy() for n, g in zip(wrt, found, strict=True)})


def run_once(function: Any, x: Any) -> dict[str, Any]:
    """Results of a call as arrays."""
    return {n: v.numpy() for n, v in function(tf.constant(x)).items()}


CASES = {f"random_{k}": random_model for k in range(100)}


def drawn(rng: Rng) -> tuple[Draw, Callable[[Any], dict[str, Any]], int]:
    """What was drawn, a function of x by results, and the width of its rows."""
    keras.utils.clear_session(free_memory=False)  # so that names of layers begin anew
    d, width = Draw(rng), int(rng.integers(2, 5))
    parts: list[tuple[Part, bool]] = []
    c = width
    for _ in range(int(rng.integers(1, 6))):
        part, after = d.of(MAKERS)(d, c)
        added = after == c and d.chance(0.25)
        d.words[-1] += " added" * added
        parts.append((part, added))
        c = after
    whole = d.chance(0.3)

    def run(x: Any) -> dict[str, Any]:
        for part, added in parts:
            y = part(x)
            x = x + y if added else y
        return {"rows": x, "whole": tf.reduce_mean(x, 1)} if whole else {"rows": x}

    return d, run, width

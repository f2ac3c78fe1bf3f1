"""Steps of random graphs that make layers, windows, and slopes of what is there."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from growth import Grown, Growth, step

import lstm_ir as li
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.core import activations
from lstm_ir.ops.nn.threefry import random_bits
from lstm_ir.ops.primitive.stencil import Taps, stencil, stencil_grad


@step("softmax", "log_softmax")
def _softmax(g: Growth) -> Grown:
    v = g.pick("f", lambda v: v.rank > 0 and all(map(g.at, v.shape)))
    return (li.softmax if g.chance() else li.log_softmax)(v, g.axis(v))


@step("dropout")
def _drop(g: Growth) -> Grown:
    counter = g.indices((), 0, 100, "i64") if g.chance() else None
    return li.dropout(g.pick("f"), g.among([0.0, 0.3, 0.5, 0.9]), li.random_key(g.whole(0, 99), counter))


GATES = {"lstm": 4, "gru": 3, "rnn": 1}
FUNCTIONS = {"lstm": 5, "gru": 3, "rnn": 1}  # activations of a direction


def _layer(g: Growth, name: str) -> tuple[li.Value, ...]:
    """A recurrent layer with operands and attributes of any kind; all its results."""
    kind = g.float()
    found = [v for v in g.pool if v.rank == 3 and v.dtype is kind and isinstance(v.shape[2], int) and v.shape[2]]
    x = g.among(found) if found else g.leaf(TensorType((*g.shape(2, 2), g.whole(1, 6)), kind))
    batch, hidden, way = g.chance(0.3), g.whole(1, 9), g.among(["forward", "reverse", "bidirectional"])
    ways = 2 if way == "bidirectional" else 1
    rows = GATES[name] * hidden
    steps, many = (x.shape[1], x.shape[0]) if batch else (x.shape[0], x.shape[1])
    wide = g.whole(1, 4) if name == "lstm" and g.chance(0.15) else hidden
    reset_after = g.chance(0.7)
    shapes: dict[str, tuple[Any, ...]] = {"w_ih": (ways, rows, x.shape[2]), "w_hh": (ways, rows, wide)}
    more: dict[str, tuple[Any, ...]] = {
        "b": (ways, rows), "h0": (ways, many, wide), "recurrent_mask": (ways, many, wide),
    }  # fmt: skip
    if name == "lstm":
        more |= {"c0": (ways, many, hidden), "peephole": (ways, g.among([3, 4]) * hidden)}
        shapes |= {"w_hr": (ways, wide, hidden)} if wide != hidden else {}
    if name == "gru" and reset_after:
        more["b_hn"] = (ways, hidden)
    shapes |= {n: s for n, s in more.items() if g.chance(0.4)}
    given = {n: _small(g, TensorType(s, kind)) for n, s in shapes.items()}
    limit = {} if g.chance(0.7) else g.among([{"lengths": g.indices((many,), 0, steps)}, {"count": _count(g, steps)}])
    options: dict[str, Any] = {"direction": way, "layout": "batch" if batch else "time"}
    options |= {"gate_clip": 0.75} if g.chance(0.1) else {}
    options |= {"padding": "hold"} if limit and g.chance(0.3) else {}
    options |= {"save": True} if g.chance(0.2) else {}
    if g.chance(0.2):
        options["activations"] = tuple(g.among(list(activations.TABLE)) for _ in range(ways * FUNCTIONS[name]))
    if name == "lstm":
        options |= {"forget_bias": 1.0} if g.chance(0.2) else {}
        options |= {"cell_clip": 0.4} if g.chance(0.1) else {}
        options |= {"input_forget": True} if g.chance(0.1) else {}
        options |= {"output_peephole": "previous"} if "peephole" in given and g.chance(0.5) else {}
    if name == "gru":
        options |= {"reset_after": reset_after, "flip_z": g.chance(0.3)}
    out = getattr(li, name)(x, **given, **limit, **options)
    return tuple(v for v in out if v is not None)


def _small(g: Growth, t: TensorType) -> li.Value:
    """A weight of small numbers, or any value."""
    if t.is_static and not g.chance(0.2):
        return g.weight(g.rng.normal(0, 0.4, [g.at(d) for d in t.shape]).astype(t.dtype.numpy))
    return g.like(t)


def _count(g: Growth, steps: Any) -> li.Value:
    return g.indices((), 0, steps, g.among(["i32", "i64"]))


def _layers() -> None:
    def some(g: Growth, name: str) -> Grown:
        out = _layer(g, name)
        return out[: g.whole(1, len(out))]

    for name in GATES:
        step(name)(lambda g, name=name: some(g, name))  # type: ignore[misc]
        step(f"{name}_grad")(lambda g, name=name: sloped(g, g.among(_layer(g, name)[:2])))  # type: ignore[misc]


_layers()


def sloped(g: Growth, y: li.Value) -> Grown:
    """Slopes of y by some of the inputs and weights that it depends on, for a new cotangent."""
    if not y.dtype.is_float:
        return None
    g.named_outputs += 1
    graph = li.Graph("sloped", g.inputs, {f"s{g.named_outputs}": y})
    known = {**graph.weights, **dict(zip(graph.input_names, g.inputs, strict=True))}
    wrt: list[str] = []
    for name in known:
        if known[name].dtype.is_float and len(wrt) < 3:
            with contextlib.suppress(li.GradientError):
                li.vjp(graph, graph.output_names, name)
                wrt.append(name)
    if not wrt:
        return None
    made = li.vjp(graph, graph.output_names, wrt)
    g.inputs[:] = made.params
    return tuple(made.outputs[1:])


@step("threefry")
def _bits(g: Growth) -> Grown:
    key = li.random_key(g.whole(0, 99), g.indices((), 0, 100, "i64") if g.chance() else None)
    return random_bits(key, g.shape())


@step("zoneout_lstm", "recurrent_dropout_lstm", "layer_norm_lstm")
def _variant(g: Growth) -> Grown:
    if "f32" not in g.kinds:
        return None
    x = g.leaf(TensorType((*g.shape(2, 2), g.whole(1, 6)), DType.f32))
    hidden = g.whole(1, 9)
    w_ih, w_hh = (g.weight(g.rng.normal(0, 0.4, (4 * hidden, k)).astype("f4")) for k in (x.shape[2], hidden))
    way, key = g.among(["forward", "reverse"]), li.random_key(g.whole(0, 99))
    form = g.whole(0, 2)
    if form == 0:
        return li.zoneout_lstm(x, w_ih, w_hh, key=key, zoneout_c=0.3, zoneout_h=0.1, direction=way)[0]
    if form == 1:
        return li.recurrent_dropout_lstm(x, w_ih, w_hh, key=key, rate=0.4, direction=way)[0]
    return li.layer_norm_lstm(x, w_ih, w_hh, scale_c=np.ones(hidden, np.float32), direction=way)[0]


@step("convolution")
def _convolved(g: Growth) -> Grown:
    kind = g.float()
    groups, width, by = g.among([1, 1, 2]), g.whole(1, 3), g.whole(1, 2)
    c, o = groups * g.whole(1, 3), groups * g.whole(1, 3)
    x = g.leaf(TensorType((g.size(), c, g.whole(width * by, 12)), kind))
    w = g.leaf(TensorType((o, c // groups, width), kind))
    return li.conv1d(x, w, stride=g.whole(1, 3), padding=g.whole(0, 2), dilation=by, groups=groups)


@step("convolution_transpose")
def _transposed(g: Growth) -> Grown:
    kind, groups, width = (g.float(), g.among([1, 2]), g.whole(1, 3))
    c = groups * g.whole(1, 2)
    x = g.leaf(TensorType((g.size(), c, g.whole(1, 5)), kind))
    w = g.leaf(TensorType((c, g.whole(1, 3), width), kind))
    return li.conv_transpose1d(x, w, stride=g.whole(1, 3), dilation=g.whole(1, 2), groups=groups)


@step("max_pool", "avg_pool")
def _pooled(g: Growth) -> Grown:
    kind, width = g.float(), g.whole(1, 3)
    x = g.leaf(TensorType((g.size(), g.whole(1, 3), g.whole(width, 9), g.whole(width, 5)), kind))
    build: Any = g.among([li.max_pool2d, li.avg_pool2d])
    y: li.Value = build(x, width, stride=g.whole(1, 3), padding=g.whole(0, width // 2), ceil_mode=g.chance(0.5))
    return y


@step("stencil")
def _stencil(g: Growth) -> Grown:
    kind, groups, each = g.float(), g.whole(1, 2), g.whole(1, 3)
    x = g.leaf(TensorType((g.size(), groups, each, 5, 6), kind))
    w = g.leaf(TensorType((groups, g.whole(1, 3), each, 3), kind))
    strides, spacing = ((1, 2), (1, 1)) if g.chance(0.5) else ((1, 1), (1, 2))
    taps = Taps((0, 2, 1), (3, 0, 1), strides, spacing, low=(1, 2), high=(0, 1))
    return stencil(x, w, taps, 4, g.whole(1, 3)) if g.chance(0.5) else _of_taps(g, x, taps)


def _of_taps(g: Growth, x: li.Value, taps: Taps) -> li.Value:
    ct = g.leaf(TensorType((*x.shape[:2], g.whole(1, 3), 4, g.whole(1, 3)), x.dtype))
    return stencil_grad(x, ct, taps)


@step("dynamic_quantize_matmul")
def _quantized(g: Growth) -> Grown:
    """Of rows as they are given: those that were computed may lie near the middle between two integers."""
    K, N, kind = g.whole(1, 9), g.whole(1, 9), g.among([DType.i8, DType.u8])
    x, w = g.leaf(TensorType((*g.shape(1, 2), K), DType.f32)), g.leaf(TensorType((K, N), kind))
    scale = g.leaf(TensorType((g.among([1, N]),), DType.f32))
    zero = g.leaf(TensorType((g.among([1, N]),), kind)) if g.chance() else None
    return li.dynamic_quantize_matmul(x, w, scale, zero)


@step("batch_norm_results")
def _batch_norm(g: Growth) -> Grown:
    """In training or after; the statistics are leaves, as running ones are."""
    x = g.leaf(TensorType((g.whole(2, 5), 3, *g.shape(0, 1)), DType.f32))
    mean, var = (g.leaf(TensorType((3,), DType.f32)) for _ in range(2))
    made = li.batch_norm(x, mean, var * var + 0.5, training=True)
    return made.y.node.values if g.chance() else li.batch_norm(x, mean, var * var + 0.5).y


# What this file makes.
OPS = (
    "batch_norm_results",
    "softmax", "log_softmax", "dropout", "threefry", "zoneout_lstm", "recurrent_dropout_lstm", "layer_norm_lstm",
    "convolution", "convolution_transpose", "max_pool", "avg_pool", "stencil", "dynamic_quantize_matmul",
    *GATES, *(f"{n}_grad" for n in GATES),
)  # fmt: skip

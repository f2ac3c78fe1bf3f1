"""Steps of random graphs that make ops of TensorFlow, CudnnRNN and MPSGraph, and their gradient ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cudnn_cases as cu
import mps_cases as mps
import numpy as np
import tf_cases as tf
from growth import Grown, Growth, step

import lstm_ir as li
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.mps.activations import ACTIVATIONS

KINDS = ("f32", "f32", "f32", "f64", "f64", "f16", "bf16")
Values = dict[str, li.Value]


def _some(g: Growth, results: Any) -> tuple[li.Value, ...]:
    """One to three of the results."""
    flat = [v for r in results for v in (r if isinstance(r, tuple) else (r,))]
    return tuple(flat[int(k)] for k in g.rng.permutation(len(flat))[: g.whole(1, 3)])


def _several(made: Any) -> tuple[Any, ...]:
    return (made,) if isinstance(made, li.Value) else tuple(made)


def _given(g: Growth, shapes: Mapping[str, Any], kind: DType) -> Values:
    return {n: g.like(TensorType(s, kind)) for n, s in shapes.items()}


def _steps(g: Growth, least: int, most: int = 9) -> Any:
    """A number of steps or rows, which may have a name."""
    size = g.size()
    return size if least <= g.at(size) <= most else g.whole(least, 4)


# -- TensorFlow's block ops


def _block(g: Growth, op: str) -> Grown:
    kind = g.float(KINDS)
    sizes = (
        _steps(g, 0),
        _steps(g, 0 if op in (tf.SEQ, tf.SEQ_V2) else 1),
        g.whole(0 if op in (tf.SEQ, tf.SEQ_V2) else 1, 5),
        g.whole(1, 6),
    )
    shapes = tf.shapes(op, *sizes)
    steps = shapes.pop("seq_len_max", None)
    given = _given(g, shapes, kind)
    if steps is not None:
        known = isinstance(sizes[0], int) and g.chance(0.3)
        most = int(sizes[0]) if known else 0
        given["seq_len_max"] = li.constant(np.int64(g.whole(0, most))) if known else g.indices((), 0, sizes[0], "i64")
    attrs: dict[str, Any] = tf.required(op, g.chance())
    if op in (tf.CELL, tf.SEQ, tf.SEQ_V2) and (g.slopes or g.chance()):
        attrs["cell_clip"] = 0.0 if g.slopes else g.among([0.0, -1.0, 0.4, 3.0])
    if op in (tf.CELL, tf.SEQ) and g.chance():
        attrs["forget_bias"] = g.among([0.0, 0.5])
    return _some(g, li.op(op, **given, **attrs))


# -- CudnnRNN


def _network(g: Growth) -> dict[str, Any]:
    """Attributes of a network."""
    attrs: dict[str, Any] = {"rnn_mode": g.among(["lstm", "lstm", "gru", "rnn_tanh", "rnn_relu"])}
    attrs["direction"] = g.among(["unidirectional", "bidirectional"])
    return attrs


def _params(g: Growth, layers: int, inputs: int, hidden: int, attrs: Mapping[str, Any], kind: DType) -> li.Value:
    ways = 2 if attrs["direction"] == "bidirectional" else 1
    given = {k: v for k, v in attrs.items() if k not in ("direction", "dropout", "seed", "time_major")}
    size = cu.params_size(layers, ways, inputs, hidden, **given)
    if g.chance(0.7):
        return g.weight((0.5 * g.rng.standard_normal(size)).astype(kind.numpy))
    return g.like(TensorType((size,), kind))


def _call(g: Growth, attrs: dict[str, Any]) -> Values:
    """Operands of the forward op."""
    kind, layers, hidden = g.float(KINDS), g.whole(1, 2), g.whole(1, 5)
    T, B = _steps(g, 1), _steps(g, 1, 5)
    attrs |= {"input_mode": "skip_input"} if g.chance(0.15) else {}
    inputs = hidden if "input_mode" in attrs else g.whole(1, 4)
    attrs |= {"num_proj": g.whole(1, hidden)} if attrs["rnn_mode"] == "lstm" and g.chance(0.2) else {}
    attrs |= {"time_major": False} if g.chance(0.2) else {}
    attrs |= {"dropout": 0.5, "seed": g.whole(0, 9)} if g.chance(0.2) else {}
    rows = layers * (2 if attrs["direction"] == "bidirectional" else 1)
    shapes: dict[str, Any] = {
        "input": (T, B, inputs), "input_h": (rows, B, attrs.get("num_proj", hidden)), "input_c": (rows, B, hidden),
    }  # fmt: skip
    if attrs["rnn_mode"] != "lstm":
        shapes["input_c"] = ()
    if "time_major" in attrs:
        shapes = {n: (s[1], s[0], s[2]) if s else s for n, s in shapes.items()}
    given = _given(g, shapes, kind)
    given["params"] = _params(g, layers, inputs, hidden, attrs, kind)
    return given | {"sequence_lengths": g.indices((B,), 0, T)}


@step(cu.FORWARD)
def _cudnn(g: Growth) -> Grown:
    attrs = _network(g)
    given = _call(g, attrs)
    return _some(g, li.op(cu.FORWARD, **given, **attrs, is_training=g.chance()))


@step(cu.BACKPROP)
def _cudnn_back(g: Growth) -> Grown:
    attrs = _network(g)
    given = _call(g, attrs)
    out = li.op(cu.FORWARD, **given, **attrs)._asdict()
    slopes = {f"{n}_backprop": g.like(out[n].type) for n in ("output", "output_h", "output_c")}
    return _some(g, li.op(cu.BACKPROP, **given, **out, **slopes, **attrs))


def _sizes(g: Growth) -> dict[str, int]:
    return {"num_layers": g.whole(1, 2), "num_units": g.whole(1, 4), "input_size": g.whole(1, 4)}


@step(cu.SIZE)
def _cudnn_size(g: Growth) -> Grown:
    return _several(li.op(cu.SIZE, **_sizes(g), **_network(g), T=g.float(KINDS).value, S=g.among(["i32", "i64"])))


@step(cu.TO, cu.FROM)
def _cudnn_parts(g: Growth) -> Grown:
    sizes, attrs = _sizes(g), _network(g)
    params = _params(g, sizes["num_layers"], sizes["input_size"], sizes["num_units"], attrs, g.float(KINDS))
    ways = 2 if attrs["direction"] == "bidirectional" else 1
    count = 2 * cu.GATES[attrs["rnn_mode"]] * sizes["num_layers"] * ways
    parts = li.op(cu.TO, **sizes, params=params, **attrs, num_params_weights=count, num_params_biases=count)
    if g.chance(0.4):
        return _some(g, parts)
    biases = [g.like(b.type) for b in parts.biases]
    return _several(li.op(cu.FROM, **sizes, weights=parts.weights, biases=biases, **attrs))


# -- MPSGraph


_FUNCTIONS = {
    mps.LSTM: ("inputGate", "forgetGate", "cellGate", "outputGate", ""),
    mps.GRU: ("updateGate", "resetGate", "outputGate"),
    mps.RNN: ("",),
}


def _mps(g: Growth, op: str, back: bool) -> Grown:
    kind = g.float(KINDS)
    attrs: dict[str, Any] = {**g.among(mps.DIRECTIONS), "training": back or g.chance(0.3)}
    flags = {mps.LSTM: ("produceCell", "forgetGateLast"), mps.GRU: ("resetGateFirst", "resetAfter", "flipZ")}
    attrs |= {f: g.chance() for f in flags.get(op, ())}
    for gate in _FUNCTIONS[op]:
        if g.chance(0.15):
            attrs[f"{gate}Activation" if gate else "activation"] = g.among(list(ACTIVATIONS))
    present = [n for n in mps.OPTIONAL[op] if g.chance()]
    if not attrs.get("resetAfter"):
        present = [n for n in present if n != "secondaryBias"]
    both = bool(attrs.get("bidirectional"))
    shapes = mps.shapes(op, (_steps(g, 1), _steps(g, 1, 5), g.whole(1, 4), g.whole(1, 4)), both, present)
    given = _given(g, shapes, kind)
    out = li.op(op, **given, **attrs)
    if not back:
        return _some(g, _several(out))
    made = out._asdict()
    saved = {operand: made[result] for operand, result in mps.SAVED[op].items()}
    slopes = {"sourceGradient": g.like(made["h"].type)}
    rows = made["h"].type.with_shape(made["h"].shape[1:])
    slopes |= {n: g.like(rows) for n in mps.LATER[op] if g.chance()}
    return _some(g, _several(li.op(mps.BACK[op], **given, **saved, **slopes, **attrs)))


def _register() -> None:
    for op in tf.OPS:
        step(op)(lambda g, op=op: _block(g, op))  # type: ignore[misc]
    for op in mps.FORWARD:
        step(op)(lambda g, op=op: _mps(g, op, back=False))  # type: ignore[misc]
        step(mps.BACK[op])(lambda g, op=op: _mps(g, op, back=True))  # type: ignore[misc]


_register()
OPS = (*tf.OPS, cu.FORWARD, cu.BACKPROP, cu.SIZE, cu.TO, cu.FROM, *mps.NAMES)

"""`tf.CudnnRNNBackpropV3`: the gradients of a training call of `tf.CudnnRNNV3`.

The equations stand in meaning.py. Dropout masks come from reserve_space, as do the saved values
(f32, f64); `output` gives h of the last layer. output_h, output_c and host_reserved are not read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.opdef import Attr, Level, define, need
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.cudnn import contract as cc
from lstm_ir.ops.cudnn import reserve
from lstm_ir.ops.cudnn.build import CudnnOperands, core, got, layers, major, narrow
from lstm_ir.ops.cudnn.meaning import Array, backward, forward
from lstm_ir.ops.cudnn.rnn import FIRST, SAVED, array_call, array_results, array_run, operands_of
from lstm_ir.ops.primitive.fill import zeros_like
from lstm_ir.ops.primitive.numpy_math import wide
from lstm_ir.ops.primitive.precision import in_compute_dtype
from lstm_ir.ops.primitive.reduce import sum as sum_
from lstm_ir.ops.primitive.shape import concat, reshape
from lstm_ir.ops.primitive.window import slice_axis

RUN = "output output_h output_c"
ARRIVING = "output_backprop output_h_backprop output_c_backprop"
OPERANDS = f"{FIRST} {RUN} {ARRIVING} reserve_space host_reserved"
RESULTS = "input_backprop input_h_backprop input_c_backprop params_backprop"
Parts = dict[tuple[str, int], Any]


def _types(*operands: TensorType, **a: Any) -> dict[str, TensorType]:
    named = dict(zip(OPERANDS.split(), operands, strict=True))
    call = cc.call(*operands[:5], **a)
    n = call.net
    for name in ("output", "output_backprop"):
        cc.exactly(name, named[name], call.rows(n.width), "the shape of output")
    for name in ("output_h", "output_h_backprop"):
        cc.exactly(name, named[name], call.state(n.Q), "the shape of input_h")
    for name in ("output_c", "output_c_backprop"):
        if n.lstm:
            cc.exactly(name, named[name], call.state(n.H), "the shape of input_c")
        else:
            cc.same_dtype(name, named[name], call.dtype)
    given, host = named["reserve_space"], named["host_reserved"]
    problem = f"reserve_space is {given}: that of a call without training; set is_training=True"
    need(given.rank == 1, problem)
    cc.exactly("reserve_space", given, call.reserve(), "that of a training call like this")
    need(host.dtype is DType.i8, f"host_reserved is {host}, expected i8 elements")
    return dict(zip(RESULTS.split(), operands[:4], strict=True))


def _numpy(*operands: Array, seed: int, seed2: int, **a: Any) -> list[Array]:
    first = operands[:5]
    call = array_call(first, a)
    n = call.net
    parts: Parts = dict(reserve.unpacked_numpy(call, operands[11]))
    keep = [parts["keep", k] for k in range(n.L - 1)] if call.masked else None
    run = array_run(call, first, keep)
    wides = [np.asarray(wide(v)) for v in operands[5:11]]
    turned = [v if v.ndim < 3 else array_results(call, v)[0] for v in wides]
    if call.exact:
        parts["y", n.L - 1] = turned[0]
    else:
        parts |= forward(run)[3]
    dy, dh, dc = turned[3], turned[4], turned[5] if n.lstm else None
    dx, dh, dc, d_params = backward(run, parts, dy, dh, dc)
    if dc is None:
        return [*array_results(call, dx, dh), np.zeros_like(operands[2]), d_params]
    return [*array_results(call, dx, dh, dc), d_params]


def _expand(*values: Value, seed: int, seed2: int, **a: Any) -> dict[str, Value]:
    first = values[:5]
    call = cc.call(*(v.type for v in first), **a)
    n = call.net
    parts: Parts = dict(reserve.unpacked(call, values[11]))
    keep = [parts["keep", k] for k in range(n.L - 1)] if call.masked else None
    v = operands_of(call, first, keep)
    output, dy, dh, dc = (
        major(in_compute_dtype(w), call.time_major) if w.rank == 3 else w
        for w in (values[5], *values[8:11])
    )  # fmt: skip
    if call.exact:
        parts["y", n.L - 1] = output
    else:
        parts |= _run_again(v)
    found = _back(v, parts, dy, dh, dc if n.lstm else None)
    d_x, d_h, d_c, d_params = found
    outward = {"input_backprop": d_x, "input_h_backprop": d_h}
    if d_c is not None:
        outward["input_c_backprop"] = d_c
    out = {k: narrow(major(w, call.time_major), call.dtype) for k, w in outward.items()}
    out.setdefault("input_c_backprop", zeros_like(values[2]))
    return out | {"params_backprop": narrow(d_params, call.dtype)}


def _run_again(v: CudnnOperands) -> Parts:
    """The saved values of another forward run."""
    nodes = layers(v, save=True)
    rows = {(name, k): m.by_name.get(name) for k, m in enumerate(nodes) for name in SAVED}
    return {key: w for key, w in rows.items() if w is not None}


def _back(
    v: CudnnOperands, parts: Parts, dy: Value, dh: Value, dc: Value | None
) -> tuple[Value, Value, Value | None, Value]:
    """Gradients of x, h0, c0 and params; the last layer first."""
    n, nodes = v.call.net, list[Node]()
    for layer in reversed(range(n.L)):
        x = v.dropped(parts["y", layer - 1], layer - 1) if layer else v.x
        node = core(n, "_grad", v.operands(x, layer) | _arriving(n.D, layer, parts, dy, dh, dc))
        nodes.insert(0, node)
        dy = got(node, "d_x")
        dy = v.dropped(dy, layer - 1) if layer else dy
    if not n.feeds(0):
        lead = dy.shape[:2]
        dy = sum_(reshape(dy, (*lead, n.D * n.G, n.H)), 2)
    d_h = concat([got(m, "d_h0") for m in nodes])
    d_c = concat([got(m, "d_c0") for m in nodes]) if n.lstm else None
    return dy, d_h, d_c, _params(v, nodes)


def _arriving(D: int, layer: int, parts: Parts, dy: Value, dh: Value, dc: Value | None) -> dict[str, Any]:
    """What the layer's gradient op takes beside its forward operands."""
    first, last = layer * D, (layer + 1) * D
    saved = {name: parts.get((name, layer)) for name in SAVED}
    states = {"d_h_n": slice_axis(dh, 0, first, last)}
    if dc is not None:
        states["d_c_n"] = slice_axis(dc, 0, first, last)
    return saved | {"d_y": dy} | states


def _params(v: CudnnOperands, nodes: list[Node]) -> Value:
    """The gradients of all weights in the order of the vector."""
    n = v.call.net
    matrices, biases = [], []
    for p in range(n.L * n.D):
        node, d = nodes[p // n.D], p % n.D
        for name in ("d_w_ih", "d_w_hh", "d_w_hr"):
            if name in node.by_name:
                matrices.append(_flat(got(node, name), d))
        b = _flat(got(node, "d_b"), d)
        biases.append(b)
        if n.mode == "gru":
            rz = slice_axis(b, 0, 0, 2 * n.H)
            biases.append(concat([rz, _flat(got(node, "d_b_hn"), d)]))
        else:
            biases.append(b)
    return concat(matrices + biases)


def _flat(v: Value, d: int) -> Value:
    """Direction d as a vector."""
    part = slice_axis(v, 0, d, d + 1)
    size = 1
    for extent in part.shape:
        size *= extent
    return reshape(part, (size,))


CUDNN_RNN_BACKPROP = define(
    "tf.CudnnRNNBackpropV3",
    OPERANDS,
    attrs={**cc.SHARED, "time_major": Attr("bool", True)},
    results=RESULTS,
    types=_types,
    numpy=_numpy,
    vjp=None,
    expand=_expand,
    level=Level.composite,
    ranges=cc.lengths_range,
)

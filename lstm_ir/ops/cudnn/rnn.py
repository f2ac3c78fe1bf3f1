"""`tf.CudnnRNNV3`: several layers, one or two directions, on any hardware.

The equations stand in meaning.py, the params vector in layout.py, the reserve in
reserve.py; docs/cudnn-rnn.md has every rule with its evidence. Two operands are additions:
`dropout_keep` [L-1,T,B,D*Q] (u8, i1 or the floats' type; 0 drops) takes the place of the drawn
masks, and `step` i64[] joins the key, so that every call of a training step draws anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir.errors import GradientError, message
from lstm_ir.ir.expansion import expansion
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.opdef import OPS, Attr, Level, define, need
from lstm_ir.ir.pullback import session, through
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.cudnn import contract as cc
from lstm_ir.ops.cudnn import reserve
from lstm_ir.ops.cudnn.build import CudnnOperands, got, layers, major, narrow
from lstm_ir.ops.cudnn.meaning import Array, CudnnArrays, forward
from lstm_ir.ops.primitive.fill import zeros, zeros_like
from lstm_ir.ops.primitive.numpy_math import wide
from lstm_ir.ops.primitive.precision import in_compute_dtype
from lstm_ir.ops.primitive.shape import concat

FIRST = "input input_h input_c params sequence_lengths"
ATTRS = {**cc.SHARED, "is_training": Attr("bool", True), "time_major": Attr("bool", True)}
RESULTS = "output output_h output_c reserve_space host_reserved"


def _types(*operands: Any, is_training: bool, **a: Any) -> dict[str, TensorType]:
    *first, keep, step = operands
    call = cc.call(*first, **a)
    n = call.net
    if keep is not None:
        _check_keep(keep, call)
    good = step is None or step == TensorType((), DType.i64)
    need(good, f"step is {step}, expected i64[]")
    return {
        "output": call.rows(n.width),
        "output_h": call.state(n.Q),
        "output_c": call.state(n.H) if n.lstm else call.of(),
        "reserve_space": call.reserve() if is_training else call.of(),
        "host_reserved": TensorType((), DType.i8),
    }


def _check_keep(keep: TensorType, call: cc.CudnnCall) -> None:
    kinds = (call.dtype, DType.u8, DType.i1)
    problem = f"dropout_keep is {keep}; its elements are one of u8, i1, {call.dtype}"
    need(keep.dtype in kinds, problem)
    need(call.dropout > 0, "dropout_keep is given, but dropout is 0: nothing would be dropped")
    want = TensorType((call.net.L - 1, call.T, call.B, call.net.width), keep.dtype)
    cc.exactly("dropout_keep", keep.with_dtype(call.dtype), want.with_dtype(call.dtype),
               "[L-1,T,B,D*Q]")  # fmt: skip


def array_call(arrays: tuple[Array, ...], a: dict[str, Any]) -> cc.CudnnCall:
    """The sizes of a call with arrays."""
    return cc.call(*(TensorType(v.shape, DType.of(v.dtype)) for v in arrays), **a)


def array_run(call: cc.CudnnCall, arrays: tuple[Array, ...], keep: list[Array] | None) -> CudnnArrays:
    """A call with arrays, time-major and wide."""
    x, h, c, params, lengths = (np.asarray(wide(v)) for v in arrays)
    if not call.time_major:
        x, h = np.swapaxes(x, 0, 1), np.swapaxes(h, 0, 1)
        c = np.swapaxes(c, 0, 1) if call.net.lstm else c
    cells = c if call.net.lstm else None
    return CudnnArrays(call.net, params, x, h, cells, lengths, keep, call.scale)


def array_results(call: cc.CudnnCall, *arrays: Array) -> list[Array]:
    """Time-major arrays as the op gives them."""
    return [v if call.time_major else np.swapaxes(v, 0, 1) for v in arrays]


def _numpy(*operands: Any, is_training: bool, seed: int, seed2: int, **a: Any) -> list[Array]:
    first, (keep, step) = operands[:5], operands[5:]
    call = array_call(first, a)
    masks = reserve.masks_numpy(call, keep, step, seed, seed2) if is_training else None
    run = array_run(call, first, masks)
    y, h, c, saved = forward(run)
    parts = saved | {("keep", k): m for k, m in enumerate([] if masks is None else masks)}
    kept = reserve.packed_numpy(call, parts) if is_training else np.zeros(())
    if c is None:
        return [*array_results(call, y, h), np.zeros(()), kept, np.zeros((), np.int8)]
    return [*array_results(call, y, h, c), kept, np.zeros((), np.int8)]


def operands_of(call: cc.CudnnCall, values: tuple[Value, ...], keep: list[Value] | None) -> CudnnOperands:
    """A call's first operands as the core ops take them."""
    x, h, c, params, lengths = values
    x, h = (major(in_compute_dtype(v), call.time_major) for v in (x, h))
    cells = major(in_compute_dtype(c), call.time_major) if call.net.lstm else None
    return CudnnOperands(call, x, h, cells, in_compute_dtype(params), lengths, keep)


def _expand(*operands: Any, is_training: bool, seed: int, seed2: int, **a: Any) -> dict[str, Value]:
    first, (keep, step) = operands[:5], operands[5:]
    call = cc.call(*(v.type for v in first), **a)
    n, dtype = call.net, call.dtype
    masks = reserve.masks(call, keep, step, seed, seed2) if is_training else None
    nodes = layers(operands_of(call, first, masks), save=is_training)

    def outward(v: Value) -> Value:
        return narrow(major(v, call.time_major), dtype)

    out = {
        "output": outward(got(nodes[-1], "y")),
        "output_h": outward(concat([got(m, "h_n") for m in nodes])),
        "output_c": zeros((), dtype),
        "reserve_space": zeros((), dtype),
        "host_reserved": zeros((), DType.i8),
    }
    if n.lstm:
        out["output_c"] = outward(concat([got(m, "c_n") for m in nodes]))
    if is_training:
        parts = {(name, k): m.by_name.get(name) for k, m in enumerate(nodes) for name in SAVED}
        parts |= {("keep", k): m for k, m in enumerate([] if masks is None else masks)}
        out["reserve_space"] = reserve.packed(call, parts)
    return out


SAVED = ("y", "gates", "cells", "inner")


def _vjp(node: Node, cts: Any) -> Any:
    """By tf.CudnnRNNBackpropV3; through the expansion where something arrives at the reserve, and
    with `remat`, since the reserve holds what is to be computed again."""
    if not node.attrs["is_training"]:
        problem = "has is_training=False: no masks and no reserve for a gradient; set it to True"
        raise GradientError(message(node.op.name, problem, (), node.loc))
    remat = session().remat
    if cts[3] is not None or remat is not None:
        return through(node, expansion(node, "grad"), cts, remat)
    pairs = zip(node.values[:3], cts[:3], strict=True)
    arrived = [zeros_like(v) if ct is None else ct for v, ct in pairs]
    attrs = {k: v for k, v in node.attrs.items() if k != "is_training"}
    back = OPS["tf.CudnnRNNBackpropV3"]
    out = make(back, *node.args[:5], *node.values[:3], *arrived, *node.values[3:], **attrs)
    return (*out.values, None, None, None)


CUDNN_RNN = define(
    "tf.CudnnRNNV3",
    f"{FIRST} dropout_keep? step?:i64",
    attrs=ATTRS,
    results=RESULTS,
    types=_types,
    numpy=_numpy,
    vjp=_vjp,
    expand=_expand,
    level=Level.composite,
    ranges=cc.lengths_range,
    training="is_training",
)

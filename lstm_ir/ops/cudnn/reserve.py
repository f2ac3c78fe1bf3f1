"""`reserve_space`: what a training call of CudnnRNNV3 hands to CudnnRNNBackpropV3.

One vector, the parts of `Call.saved` one after another, each [T,B,w] row by row:

    per layer    gates [T,B,D*G*H]   lstm: cells, gru: inner [T,B,D*H]   but the last: y [T,B,D*Q]
    with dropout, per layer but the last: keep [T,B,D*Q], 0 or 1

f16 and bf16 keep the masks alone: saved values would be rounded, so backward computes them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.types import DType
from lstm_ir.ops.cudnn.contract import CudnnCall
from lstm_ir.ops.nn import threefry
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.fill import zeros
from lstm_ir.ops.primitive.shape import concat, reshape
from lstm_ir.ops.primitive.window import slice_axis

Array = np.ndarray[Any, Any]
Parts = Mapping[tuple[str, int], Any]


def packed(call: CudnnCall, parts: Parts) -> Value:
    """The parts as one vector."""
    flat = []
    for name, layer, _ in call.saved():
        v = parts[name, layer]
        v = e.convert(v, call.dtype) if v.dtype is not call.dtype else v
        flat.append(reshape(v, (dims.product(v.shape),)))
    return concat(flat) if flat else zeros((0,), call.dtype)


def unpacked(call: CudnnCall, reserve: Value) -> dict[tuple[str, int], Value]:
    """The parts by name and layer; masks as i1."""
    out: dict[tuple[str, int], Value] = {}
    at: dims.Dim = 0
    for name, layer, width in call.saved():
        end = dims.add(at, dims.product((call.T, call.B, width)))
        part = reshape(slice_axis(reserve, 0, at, end), (call.T, call.B, width))
        out[name, layer] = e.not_equal(part, 0) if name == "keep" else part
        at = end
    return out


def packed_numpy(call: CudnnCall, parts: Parts) -> Array:
    """`packed`, of arrays."""
    flat = [np.asarray(parts[name, layer]).ravel() for name, layer, _ in call.saved()]
    return np.concatenate([np.zeros(0), *flat]).astype(call.dtype.numpy)


def unpacked_numpy(call: CudnnCall, reserve: Array) -> dict[tuple[str, int], Array]:
    """`unpacked`, of arrays; call.T and call.B are ints."""
    out, at = {}, 0
    for name, layer, width in call.saved():
        shape = (int(str(call.T)), int(str(call.B)), width)
        size = shape[0] * shape[1] * width
        part = reserve[at : at + size].reshape(shape)
        out[name, layer] = part != 0 if name == "keep" else part
        at += size
    return out


def masks(call: CudnnCall, stored: Value | None, step: Value | None, seed: int, seed2: int) -> list[Value] | None:
    """Keep masks i1[T,B,D*Q] per layer but the last; None where nothing is dropped."""
    if not call.masked:
        return None
    shape = _shape(call)
    if stored is None:
        key = constant(threefry.number_key(seed, seed2))
        key = key if step is None else threefry.fold_in(key, step)
        stored = threefry.random_bits(key, shape)
    # cut first: a cut of the booleans is not compiled for the CPU where T and B are names
    parts = (slice_axis(stored, 0, k, k + 1) for k in range(call.net.L - 1))
    rows = [reshape(v, shape[1:]) for v in parts]
    if stored.dtype is DType.u32:
        return [threefry.drawn(v, call.dropout) for v in rows]
    wides = [v if v.dtype.is_float else e.convert(v, DType.i32) for v in rows]  # as above: bytes
    return [e.not_equal(v, 0) for v in wides]


def masks_numpy(call: CudnnCall, stored: Array | None, step: Array | None, seed: int, seed2: int) -> list[Array] | None:
    """`masks`, of arrays."""
    if not call.masked:
        return None
    if stored is not None:
        return list(stored != 0)
    key = threefry.number_key(seed, seed2)
    if step is not None:
        number = int(step) % 2**64
        key = threefry.folded(key, number % 2**32, number >> 32)
    bits = threefry.THREEFRY.numpy(key, shape=_shape(call))
    return list(threefry.drawn(bits, call.dropout))


def _shape(call: CudnnCall) -> tuple[dims.Dim, ...]:
    """[L-1,T,B,D*Q]: the masks, counted in this order whatever time_major is."""
    return (call.net.L - 1, call.T, call.B, call.net.width)

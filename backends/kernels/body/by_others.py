"""Ops of a body that the kernel generator computes as others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from lstm_ir import ops
from lstm_ir.backends.kernels.body import instead
from lstm_ir.backends.kernels.body.access import RefusedError
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.size import size_value


def _argmax(v: Value) -> Value:
    """The least place that holds the largest element, or the first NaN."""
    (x,), axis = v.node.inputs, v.node.attrs["axis"]
    n = x.shape[axis]
    top = ops.broadcast_in_dim(ops.max(x, axis), x.shape, tuple(i for i in range(x.rank) if i != axis))
    hit = ops.equal(x, top)
    if x.dtype.is_float:
        hit = hit | ops.not_equal(x, x)
    place = ops.broadcast_in_dim(ops.arange(n, dtype="i32"), x.shape, (axis,))
    return ops.min(ops.select(hit, place, size_value(n, DType.i32)), axis)


def _confined(v: Value) -> Value:
    """Integers moved into their range: inside of a loop nothing says which lie outside of it."""
    (x,), ends = v.node.inputs, (v.node.attrs["low"], v.node.attrs["high"])
    named = not all(isinstance(end, int) for end in ends)
    dtype = DType.i32 if named and x.dtype.bits < 32 else x.dtype
    info = np.iinfo(dtype.numpy)
    held = [min(max(end, info.min), info.max) if isinstance(end, int) else end for end in ends]
    low, high = (size_value(end, dtype) for end in held)
    return ops.convert(ops.maximum(ops.minimum(ops.convert(x, dtype), high), low), x.dtype)


def _padded(v: Value) -> Value:
    """A join with what stands before and behind."""
    (x, fill), a = v.node.inputs, v.node.attrs
    if any(a["interior_padding"]):
        raise RefusedError("a pad between elements", v, instead.of_op("pad"))
    for axis, edges in enumerate(zip(a["edge_padding_low"], a["edge_padding_high"], strict=True)):
        if any(isinstance(n, int) and n < 0 for n in edges):
            raise RefusedError("a pad that cuts off", v, instead.SLICE)
        before, after = (_edge(x, fill, axis, n) for n in edges)
        if before or after:
            x = ops.concat([*before, x, *after], axis)
    return x


def _edge(x: Value, fill: Value, axis: int, size: Dim) -> list[Value]:
    """So many elements of one value along an axis; none where there are 0."""
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    return [] if size == 0 else [ops.broadcast_in_dim(fill, shape, ())]


BY_OTHERS: Mapping[str, Callable[[Value], Value]] = {"argmax": _argmax, "in_range": _confined, "pad": _padded}

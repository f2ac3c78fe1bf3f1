"""Rows picked by integers, and their transpose: `gather` and `scatter_add` along one axis.

An index must lie in 0 ... size - 1: a call that breaks this is refused where the values are known.
Where they are not, an index is moved to the nearest row, so none can reach outside the tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.opdef import Attr, Range, define, need, need_at_least, need_equal
from lstm_ir.ir.pullback import Cts, only
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive.broadcast import as_values
from lstm_ir.ops.primitive.fill import zeros_like
from lstm_ir.ops.primitive.numpy_math import wide
from lstm_ir.ops.primitive.shape import axis_of, need_axes

Array = np.ndarray[Any, Any]


def _gather_types(operand: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    need(indices.dtype.is_int, f"indices are {indices.dtype}, not integers")
    need_axes(operand, (axis,))
    need_at_least(operand.shape[axis], 1, f"axis {axis} of {operand} has no rows to pick")
    return operand.with_shape((*operand.shape[:axis], *indices.shape, *operand.shape[axis + 1 :]))


def _inside(indices: Array, size: int) -> Array:
    """Indices clamped to the rows there are."""
    return np.clip(indices.astype(np.int64), 0, size - 1)


def _ranges(node: Node) -> tuple[Range, ...]:
    size = node.inputs[0].shape[node.attrs["axis"]]
    return (Range("indices", 0, dims.add(size, -1)),)


def _gather_vjp(node: Node, cts: Cts) -> Cts:
    """Added up at the rows that were picked."""
    x, indices = node.inputs
    return scatter_add(zeros_like(x), indices, only(cts), node.attrs["axis"]), None


GATHER = define(
    "gather", "operand indices", attrs={"axis": Attr("int")}, types=_gather_types,
    numpy=lambda x, i, *, axis: np.take(x, _inside(i, x.shape[axis]), axis),
    vjp=_gather_vjp, ranges=_ranges,
)  # fmt: skip


def _scatter_types(operand: TensorType, indices: TensorType, updates: TensorType, *, axis: int) -> TensorType:
    need(operand.dtype is not DType.i1, "adds numbers, got i1")
    need(updates.dtype is operand.dtype, f"updates are {updates.dtype}, operand {operand.dtype}")
    want = _gather_types(operand, indices, axis=axis)
    need(updates.rank == want.rank, f"updates {updates} should have the shape of {want}")
    for a, b in zip(updates.shape, want.shape, strict=True):
        need_equal(a, b, f"updates {updates} should have the shape of {want}")
    return operand


def _scatter_numpy(x: Array, indices: Array, updates: Array, *, axis: int) -> Array:
    """Adds one after another; two-byte floats are summed in float32."""
    out = np.moveaxis(wide(x).copy(), axis, 0)
    rows = np.moveaxis(wide(updates), range(axis, axis + indices.ndim), range(indices.ndim))
    np.add.at(out, _inside(indices, x.shape[axis]), rows)
    return np.moveaxis(out, 0, axis).astype(x.dtype)


def _scatter_vjp(node: Node, cts: Cts) -> Cts:
    """All of it to the operand; the picked rows to the updates."""
    ct = only(cts)
    return ct, None, take(ct, node.inputs[1], node.attrs["axis"])


SCATTER_ADD = define(
    "scatter_add", "operand indices updates", attrs={"axis": Attr("int")}, types=_scatter_types,
    numpy=_scatter_numpy, vjp=_scatter_vjp, ranges=_ranges,
)  # fmt: skip


def _indices(indices: Any) -> Value:
    return indices if isinstance(indices, Value) else constant(indices)


def take(x: Any, indices: Any, axis: int = 0) -> Value:
    """Rows of x along `axis`: [..., *indices.shape, ...], each index in 0 ... size - 1."""
    (v,) = as_values("gather", x)
    return make(GATHER, v, _indices(indices), axis=axis_of("gather", v, axis)).values[0]


def scatter_add(x: Any, indices: Any, updates: Any, axis: int = 0) -> Value:
    """x with `updates` [..., *indices.shape, ...] added to its rows; equal indices add up."""
    v, u = as_values("scatter_add", x, updates)
    at = axis_of("scatter_add", v, axis)
    return make(SCATTER_ADD, v, _indices(indices), u, axis=at).values[0]

"""Sizes as values, and values held between sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir import dims, options
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.location import here
from lstm_ir.ir.opdef import OPS, Attr, Range, Trait, define, need, need_at_least
from lstm_ir.ir.types import DimLike, DType, TensorType, shape_of

_WHOLE = (DType.i32, DType.i64)  # of sizes


def _dim_types(*, size: Dim, dtype: DType) -> TensorType:
    need(dtype in _WHOLE, f"sizes are i32 or i64, got {dtype}")
    most = min(int(np.iinfo(dtype.numpy).max), dims.LIMIT - 1)
    if _largest(size) > most:
        need_at_least(dims.add(most, dims.mul(size, -1)), 0, f"{size} is more than an {dtype} holds, {most}")
    return TensorType((), dtype)


def _largest(size: Dim) -> int:
    """No value of the size is above it: a call's names are i32 (`bind_dims`)."""
    if isinstance(size, int):
        return size
    names = dict.fromkeys(dims.names(size), int(np.iinfo(np.int32).max))
    return dims.evaluate(dims.Expr(tuple((mono, k) for mono, k in size.terms if k > 0)), names)


DIM = define(
    "dim", "", attrs={"size": Attr("dim"), "dtype": Attr("dtype", DType.i32)}, types=_dim_types,
    numpy=lambda *, size, dtype: np.asarray(size, dtype.numpy), vjp=lambda node, cts: (), traits=(Trait.leaf,),
)  # fmt: skip


def size(d: DimLike) -> Value:
    """The value of a dimension expression at run time, i32[]."""
    if isinstance(d, Value):
        problem = "takes a size; those of a value are x.shape, and li.dim(x, axis) is one of them, i32[]"
        raise IRError(message("size", problem, [("d", d.type)], here()))
    return make(DIM, size=d).values[0]


def size_value(d: Dim, dtype: DType) -> Value:
    """A size as an integer of the graph: a constant, where it is a number."""
    if isinstance(d, int):
        return constant(d, dtype)
    if dtype in _WHOLE:
        return make(DIM, size=d, dtype=dtype).values[0]
    return make(OPS["convert"], size(d), dtype=dtype).values[0]


def dim(x: Value, axis: int) -> Value:
    """The size of `axis` of x at run time, i32[]."""
    at = options.integer("dim", "axis", axis)
    if not -x.rank <= at < x.rank:
        raise options.refuse("dim", "axis", axis, f"an axis of {x.type}")
    return size(x.shape[at])


SAY_HOW_MANY = "give arrays that end with the longest row, or say total_length=x.shape[1] in the module"
NOTES = {
    "labels": "labels; positions without one, such as PyTorch's -100, are left out by mask=labels != -100",
    "padded_labels": "labels; those behind label_lengths may be anything",
    "tags": "tags; steps without one are left out by lengths or mask",
    "longest": "the longest of lengths, which is how many steps pad_packed_sequence gives without total_length; "
    + SAY_HOW_MANY,
}
"""What a message adds about values that were refused, by what the values are."""


def _in_range_types(operand: TensorType, *, low: Dim, high: Dim, of: str) -> TensorType:
    need(operand.dtype.is_int, f"takes integers, got {operand.dtype}")
    return operand


def _ranges(node: Node) -> tuple[Range, ...]:
    return (Range("operand", node.attrs["low"], node.attrs["high"], NOTES.get(node.attrs["of"], "")),)


def _in_range_numpy(x: Any, *, low: int, high: int, of: str) -> Any:
    info = np.iinfo(x.dtype)  # 8 bits may hold less than the range
    return np.clip(x, min(max(low, info.min), info.max), min(max(high, low), info.max))


IN_RANGE = define(
    "in_range", "operand", attrs={"low": Attr("dim"), "high": Attr("dim"), "of": Attr("str", "")},
    types=_in_range_types,
    numpy=_in_range_numpy, vjp=lambda node, cts: (None,), ranges=_ranges, traits=(Trait.elementwise,),
)  # fmt: skip


def _held_between(x: Value, low: Dim, high: Dim) -> bool:
    return x.node.op is IN_RANGE and (x.node.attrs["low"], x.node.attrs["high"]) == (low, high)


def in_range(x: Value, low: DimLike, high: DimLike, of: str = "") -> Value:
    """x, whose values must lie in [low, high]: a call with others is refused.

    Unasserted, they are clamped. of: what they are, a word of NOTES, whose note then stands in the message.
    """
    lo, hi = shape_of((low, high))
    if _held_between(x, lo, hi):
        return x
    return make(IN_RANGE, x, low=lo, high=hi, of=of).values[0]


def steps_that_run(count: Value | None, length: Dim) -> Value:
    """How many steps a loop of `length` rows runs, i32[]: a count is moved into its range before it is narrowed."""
    if count is None:
        return size(length)
    if count.op not in ("constant", "scan") and not _held_between(count, 0, length):
        count = make(OPS["clamp"], constant(0, count.dtype), count, size_value(length, count.dtype)).values[0]
    return count if count.dtype is DType.i32 else make(OPS["convert"], count, dtype=DType.i32).values[0]

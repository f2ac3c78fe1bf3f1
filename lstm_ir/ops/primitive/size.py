"""Sizes as values, and values held between sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir import options
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.location import here
from lstm_ir.ir.opdef import OPS, Attr, Range, Trait, define, need
from lstm_ir.ir.types import DimLike, DType, TensorType, shape_of

DIM = define(
    "dim", "", attrs={"size": Attr("dim")}, types=lambda *, size: TensorType((), DType.i32),
    numpy=lambda *, size: np.int32(size), vjp=lambda node, cts: (), traits=(Trait.leaf,),
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
    found = size(d)
    return found if dtype is DType.i32 else make(OPS["convert"], found, dtype=dtype).values[0]


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


def in_range(x: Value, low: DimLike, high: DimLike, of: str = "") -> Value:
    """x, whose values must lie in [low, high]: a call with others is refused.

    Unasserted, they are clamped. of: what they are, a word of NOTES, whose note then stands in the message.
    """
    lo, hi = shape_of((low, high))
    if x.node.op is IN_RANGE and (x.node.attrs["low"], x.node.attrs["high"]) == (lo, hi):
        return x
    return make(IN_RANGE, x, low=lo, high=hi, of=of).values[0]

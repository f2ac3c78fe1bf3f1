"""Rows of unequal lengths: which of their steps there are."""

from __future__ import annotations

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.primitive.fill import arange


def exists(lengths: Value, steps: Dim, axis: int = 0) -> Value:
    """Whether a row has a step, i1[T,B] of lengths [B]; with the steps on axis 1 i1[B,T]."""
    shape = (steps, *lengths.shape) if axis == 0 else (*lengths.shape, steps)
    at = broadcast_in_dim(arange(steps, lengths.dtype), shape, (axis,))
    return e.less(at, broadcast_in_dim(lengths, shape, (1 - axis,)))


def zeros_behind(x: Value, there: Value) -> Value:
    """x [T,B,...] with zeros where `there` [T,B] is false: what is there may be NaN, and is not passed on."""
    return e.select(broadcast_in_dim(there, x.shape, (0, 1)), x, constant(0, x.dtype))

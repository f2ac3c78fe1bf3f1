"""Operands of Keras' functions as tensors of one element type: the rules of Keras 3 for types that differ.

A number of Python has no type of its own: beside integers a float makes f32 of them, beside floats it is one of those.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from lstm_ir import ops as li
from lstm_ir.importers.keras.call import Tensor
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.truths import truth_of
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType

Operand = Value | bool | int | float


def together(given: Sequence[Any], floats: bool = False) -> list[Value]:
    """The operands as tensors of one type, which is one of floats where `floats` says so, as a division needs it."""
    there = [v.value.dtype for v in given if isinstance(v, Tensor)]
    operands = [_operand(v, there) for v in given]
    values = [v for v in operands if isinstance(v, Value)]
    if not values:
        raise NodeRefusedError("it is called without a tensor")
    kind = reduce(_common, (v.dtype for v in values))
    for v in operands:
        if isinstance(v, float) and not kind.is_float:
            kind = DType.f32
        elif isinstance(v, int) and not isinstance(v, bool) and kind is DType.i1:
            kind = DType.i32
    if floats and not kind.is_float:
        kind = DType.f32
    return [_as(v, kind) for v in operands]


def truths(given: Sequence[Any]) -> list[Value]:
    """The operands as booleans: what is not 0 is true."""
    return [truth_of(_as(_operand(v, ()), DType.f32) if not isinstance(v, Tensor) else v.value) for v in given]


def _operand(v: Any, there: Sequence[DType]) -> Operand:
    """A tensor, a number, or an array as a tensor: of 64 bits only beside others of them, as most models mean it."""
    if isinstance(v, Tensor):
        return v.value
    if isinstance(v, (bool, int, float)):
        return v
    if not isinstance(v, np.ndarray):
        raise NodeRefusedError(f"its operand {v!r:.60} is not known")
    if v.dtype == np.float64 and DType.f64 not in there:
        return li.constant(v.astype(np.float32))
    if v.dtype.kind in "iu":
        like = next((d for d in there if d.is_int and d is not DType.i1), DType.i32)
        if (v.astype(like.numpy) != v).any():
            raise NodeRefusedError(f"its operand {v!r:.60} has elements that {like} does not have")
        return li.constant(v.astype(like.numpy))
    return li.constant(v)


def _common(a: DType, b: DType) -> DType:
    """The type of both; floats of 64 bits and integers of several sizes are other types on other backends."""
    if a is b or b is DType.i1:
        return a
    if a is DType.i1 or (b.is_float and not a.is_float):
        return b
    if a.is_float and not b.is_float:
        return a
    if a.is_float and DType.f64 not in (a, b):
        return DType.f32
    raise NodeRefusedError(f"its operands are {a} and {b}")


def _as(v: Operand, kind: DType) -> Value:
    if isinstance(v, Value):
        return v if v.dtype is kind else li.convert(v, kind)
    return li.constant(v, kind)

"""Where 16-bit floats are computed: in f32, with one rounding at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.location import here
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.broadcast import as_values
from lstm_ir.ops.primitive.elementwise import convert


def inner(dtype: DType) -> DType:
    """The type that elements of `dtype` are computed in: f32 for 16-bit floats."""
    return DType.f32 if dtype.bits == 16 else dtype


def widened(x: Value, compute: Callable[[Value], Value]) -> Value:
    """compute(x), of 16-bit floats in f32 and rounded once."""
    y = compute(convert(x, inner(x.dtype)))
    return convert(y, x.dtype)


def floats(op: str, x: Any, name: str = "x") -> Value:
    """The operand as a value; IRError for one that has no float elements."""
    (v,) = as_values(op, x)
    if not v.dtype.is_float:
        problem = f'takes float elements, got {v.dtype}; li.convert({name}, "f32") converts'
        raise IRError(message(op, problem, [(name, v.type)], here()))
    return v


def numbers(op: str, x: Any, name: str = "x") -> Value:
    """The operand as a value; IRError for booleans."""
    (v,) = as_values(op, x)
    if v.dtype is DType.i1:
        problem = f'takes numbers, got i1; li.convert({name}, "i32") converts'
        raise IRError(message(op, problem, [(name, v.type)], here()))
    return v

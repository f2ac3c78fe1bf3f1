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


def in_compute_dtype(x: Value) -> Value:
    """16-bit floats as f32, others as they are."""
    return convert(x, x.dtype.compute_dtype)


def widened(x: Value, compute: Callable[[Value], Value]) -> Value:
    """compute(x), of 16-bit floats in f32 and rounded once."""
    y = compute(in_compute_dtype(x))
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

"""Elements held inside bounds, and what to do about NaN and infinities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lstm_ir.ir import options
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.fill import full
from lstm_ir.ops.primitive.precision import floats, numbers
from lstm_ir.ops.primitive.reduce import bounds


def clip(x: Any, low: Any = None, high: Any = None) -> Value:
    """x held between bounds, numbers or values that broadcast; None is no bound. NaN stays."""
    v = numbers("clip", x)
    least, largest = bounds(v.dtype)
    if low is None and high is None:
        return v
    low = constant(least, v.dtype) if low is None else low
    return e.clamp(low, v, constant(largest, v.dtype) if high is None else high)


def nan_to_num(x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Value:
    """x with numbers in place of NaN and infinities: 0 and the largest finite ones, where not given.

    The gradient is 0 where one was replaced.
    """
    v = numbers("nan_to_num", x)
    if not v.dtype.is_float:
        return v
    largest = largest_finite(v.dtype)
    above, below = (largest if posinf is None else posinf), (-largest if neginf is None else neginf)
    for option, given in (("nan", nan), ("posinf", above), ("neginf", below)):
        options.real("nan_to_num", option, given)
    v = e.select(is_nan(v), constant(nan, v.dtype), v)
    v = e.select(e.equal(v, math.inf), constant(above, v.dtype), v)
    return e.select(e.equal(v, -math.inf), constant(below, v.dtype), v)


def largest_finite(dtype: DType) -> float:
    """The largest number of a float type that is not infinite."""
    if dtype is DType.bf16:
        return float.fromhex("0x1.fep127")
    return float(np.finfo(dtype.numpy).max)


def is_nan(x: Any) -> Value:
    """Whether an element is no number, as i1."""
    v = floats("is_nan", x)
    return e.not_equal(v, v)


def is_inf(x: Any, positive: bool = True, negative: bool = True) -> Value:
    """Whether an element is infinite, of the signs that are asked for, as i1."""
    v = floats("is_inf", x)
    signs = [s for s, asked in ((1, positive), (-1, negative)) if options.flag("is_inf", "a sign", asked)]
    found = [e.equal(v, s * math.inf) for s in signs]
    if not found:
        return full(v.shape, False, DType.i1)
    return found[0] if len(found) == 1 else e.logical_or(*found)

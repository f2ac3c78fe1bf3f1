"""Division rounded down, and what it leaves, as NumPy and Python divide."""

from __future__ import annotations

from typing import Any

from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ops.primitive.broadcast import aligned
from lstm_ir.ops.primitive.elementwise import (
    abs,
    convert,
    divide,
    equal,
    floor,
    greater,
    greater_equal,
    is_finite,
    less,
    logical_and,
    not_equal,
    remainder,
    select,
)  # fmt: skip
from lstm_ir.ops.primitive.precision import numbers

_WHOLE = {32: 2.0**26, 64: 2.0**55}
"""By bits of a float: a rounded quotient from here on is a whole number, and what a division leaves is below half a
unit of its last place."""


def mod(a: Any, b: Any) -> Value:
    """What a division rounded down leaves, the operator %: the sign is b's, as NumPy's; a % 0 of integers is a."""
    x, y = aligned("mod", a, b)
    numbers("mod", x, "a")
    left = remainder(x, y)
    return select(_of_other_sign(left, y), left + y, left)


def floor_divide(a: Any, b: Any) -> Value:
    """a / b rounded down, as NumPy's and Python's //; integers / 0 are 0, floats inf or NaN. Its gradient is 0."""
    x, y = aligned("floor_divide", a, b)
    numbers("floor_divide", x, "a")
    if x.dtype.is_float:
        kind = x.dtype.compute_dtype
        return convert(_of_floats(convert(x, kind), convert(y, kind)), x.dtype)
    down = convert(_of_other_sign(remainder(x, y), y), x.dtype)
    return select(equal(y, 0), constant(0, x.dtype), divide(x, y) - down)


def _of_floats(a: Value, b: Value) -> Value:
    """By what the division leaves: 1 // 0.1 is 9, and the quotient, which is rounded up, is 10."""
    quotient, left = a / b, remainder(a, b)
    multiple = (a - left) / b - convert(_of_other_sign(left, b), a.dtype)
    below = floor(multiple)
    whole = below + convert(greater(multiple - below, 0.5), a.dtype)
    large = logical_and(greater_equal(abs(quotient), _WHOLE[a.dtype.bits]), is_finite(a))
    by_quotient = equal(b, 0.0) | large | equal(whole, 0.0)  # a zero has the sign of the quotient
    return select(by_quotient, floor(quotient), whole)


def _of_other_sign(left: Value, divisor: Value) -> Value:
    """Whether a division leaves something whose sign is not that of the divisor."""
    return logical_and(not_equal(left, 0), not_equal(less(left, 0), less(divisor, 0)))

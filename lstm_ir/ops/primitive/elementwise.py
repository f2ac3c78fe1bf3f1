"""Builders of the elementwise ops; they have NumPy's names, and broadcast.

They know an op by its name: what an op is stands in `elementwise_ops.py`, whose gradients are built
with these.
"""

from __future__ import annotations

from typing import Any

from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value, make
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.location import here
from lstm_ir.ir.opdef import OPS
from lstm_ir.ir.types import DTypeLike
from lstm_ir.ops.primitive.broadcast import aligned, aligned_select


def _apply(name: str, *operands: Any, **attrs: Any) -> Value:
    return make(OPS[name], *aligned(name, *operands), **attrs).values[0]


def add(a: Any, b: Any) -> Value:
    """a + b."""
    return _apply("add", a, b)


def subtract(a: Any, b: Any) -> Value:
    """a - b."""
    return _apply("subtract", a, b)


def multiply(a: Any, b: Any) -> Value:
    """a * b."""
    return _apply("multiply", a, b)


def divide(a: Any, b: Any) -> Value:
    """a / b; integers truncate toward zero."""
    return _apply("divide", a, b)


def remainder(a: Any, b: Any) -> Value:
    """a - b*trunc(a/b): the sign is a's, as C's fmod and StableHLO, not as the operator %, which is `mod`."""
    return _apply("remainder", a, b)


def maximum(a: Any, b: Any) -> Value:
    """The larger; NaN if either is."""
    return _apply("maximum", a, b)


def minimum(a: Any, b: Any) -> Value:
    """The smaller; NaN if either is."""
    return _apply("minimum", a, b)


def power(a: Any, b: Any) -> Value:
    """a to the power b, floats."""
    return _apply("power", a, b)


def atan2(y: Any, x: Any) -> Value:
    """The angle of the point (x, y), in -pi..pi: C's atan2 at zeros and infinities."""
    return _apply("atan2", y, x)


def atan(x: Any) -> Value:
    """The arc tangent, in -pi/2..pi/2."""
    return atan2(x, 1.0)


def asin(x: Any) -> Value:
    """The arc sine, in -pi/2..pi/2; NaN outside of -1..1."""
    (x,) = aligned("asin", x)
    return 2.0 * atan2(x, 1.0 + sqrt(1.0 - x) * sqrt(1.0 + x))


def acos(x: Any) -> Value:
    """The arc cosine, in 0..pi; NaN outside of -1..1."""
    (x,) = aligned("acos", x)
    return 2.0 * atan2(sqrt(1.0 - x), sqrt(1.0 + x))


def logical_and(a: Any, b: Any) -> Value:
    """Bitwise and."""
    return _apply("and", a, b)


def logical_or(a: Any, b: Any) -> Value:
    """Bitwise or."""
    return _apply("or", a, b)


def logical_xor(a: Any, b: Any) -> Value:
    """Bitwise exclusive or."""
    return _apply("xor", a, b)


def shift_left(a: Any, b: Any) -> Value:
    """a << b; 0 from the width on."""
    return _apply("shift_left", a, b)


def shift_right_logical(a: Any, b: Any) -> Value:
    """a >> b with zeros moved in."""
    return _apply("shift_right_logical", a, b)


def shift_right_arithmetic(a: Any, b: Any) -> Value:
    """a >> b with the sign moved in."""
    return _apply("shift_right_arithmetic", a, b)


def negate(x: Any) -> Value:
    """-x."""
    return _apply("negate", x)


def abs(x: Any) -> Value:
    """|x|."""
    return _apply("abs", x)


def sign(x: Any) -> Value:
    """-1, 0 or 1; NaN and -0.0 stay."""
    return _apply("sign", x)


def floor(x: Any) -> Value:
    """Rounded down."""
    return _apply("floor", x)


def ceil(x: Any) -> Value:
    """Rounded up."""
    return _apply("ceil", x)


def round(x: Any) -> Value:
    """Rounded to nearest, halves to even."""
    return _apply("round_nearest_even", x)


def exp(x: Any) -> Value:
    """e to the power x."""
    return _apply("exponential", x)


def expm1(x: Any) -> Value:
    """exp(x) - 1, exact near 0."""
    return _apply("exponential_minus_one", x)


def log(x: Any) -> Value:
    """Natural logarithm."""
    return _apply("log", x)


def log1p(x: Any) -> Value:
    """log(1 + x), exact near 0."""
    return _apply("log_plus_one", x)


def erf(x: Any) -> Value:
    """Gauss' error function."""
    return _apply("erf", x)


def logistic(x: Any) -> Value:
    """1 / (1 + exp(-x)), without overflow."""
    return _apply("logistic", x)


def tanh(x: Any) -> Value:
    """Hyperbolic tangent."""
    return _apply("tanh", x)


def sin(x: Any) -> Value:
    """Sine, x in radians; compiled for a CPU it is NaN where |x| is 2^54 or more."""
    return _apply("sine", x)


def cos(x: Any) -> Value:
    """Cosine, x in radians; compiled for a CPU it is NaN where |x| is 2^54 or more."""
    return _apply("cosine", x)


def square(x: Any) -> Value:
    """x * x."""
    (v,) = aligned("square", x)
    return multiply(v, v)


def reciprocal(x: Any) -> Value:
    """1 / x, floats."""
    (v,) = aligned("reciprocal", x)
    if not v.dtype.is_float:
        problem = f'takes float elements, got {v.dtype}; li.convert(x, "f32") converts'
        raise IRError(message("reciprocal", problem, [("x", v.type)], here()))
    return divide(constant(1, v.dtype), v)


def sqrt(x: Any) -> Value:
    """Square root; NaN below 0."""
    return _apply("sqrt", x)


def rsqrt(x: Any) -> Value:
    """1 / sqrt(x)."""
    return _apply("rsqrt", x)


def logical_not(x: Any) -> Value:
    """Bitwise not."""
    return _apply("not", x)


def is_finite(x: Any) -> Value:
    """Neither NaN nor infinite, as i1."""
    return _apply("is_finite", x)


def compare(a: Any, b: Any, direction: str) -> Value:
    """a EQ|NE|LT|LE|GT|GE b, as i1; NaN is unequal to all."""
    return _apply("compare", a, b, direction=direction)


def equal(a: Any, b: Any) -> Value:
    """a == b."""
    return compare(a, b, "EQ")


def not_equal(a: Any, b: Any) -> Value:
    """a != b."""
    return compare(a, b, "NE")


def less(a: Any, b: Any) -> Value:
    """a < b."""
    return compare(a, b, "LT")


def less_equal(a: Any, b: Any) -> Value:
    """a <= b."""
    return compare(a, b, "LE")


def greater(a: Any, b: Any) -> Value:
    """a > b."""
    return compare(a, b, "GT")


def greater_equal(a: Any, b: Any) -> Value:
    """a >= b."""
    return compare(a, b, "GE")


def select(pred: Any, on_true: Any, on_false: Any) -> Value:
    """on_true where pred, else on_false; the side not taken never matters, NaN included; in gradients it does."""
    return make(OPS["select"], *aligned_select(pred, on_true, on_false)).values[0]


def clamp(low: Any, x: Any, high: Any) -> Value:
    """min(max(x, low), high); NaN stays."""
    return _apply("clamp", low, x, high)


def convert(x: Any, dtype: DTypeLike) -> Value:
    """Elements converted; float to integer truncates, saturates, and takes NaN to 0."""
    (v,) = aligned("convert", x)
    out = make(OPS["convert"], v, dtype=dtype).values[0]
    return v if out.type == v.type else out


def bitcast_convert(x: Any, dtype: DTypeLike) -> Value:
    """The same bits read as another dtype of the same width."""
    return _apply("bitcast_convert", x, dtype=dtype)

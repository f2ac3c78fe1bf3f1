"""Elementwise ops under StableHLO's names; builders have NumPy's names and broadcast.

One dtype for all operands (`select` and `compare` apart). Where StableHLO leaves a value open, it
is fixed here: integer x / 0 = -1 (all bits set), x % 0 = x, MIN / -1 = MIN, a shift by the width or
more gives 0 (or the sign).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.opdef import Attr, Op, Trait, define, need
from lstm_ir.ir.types import DType, DTypeLike, TensorType
from lstm_ir.ops.primitive import elementwise_grad as g
from lstm_ir.ops.primitive import numpy_math as nm
from lstm_ir.ops.primitive.broadcast import aligned, aligned_select

Array = np.ndarray[Any, Any]
Vjp = Callable[[Node, tuple[Value | None, ...]], tuple[Value | None, ...]]


def _accepts(kinds: str, t: TensorType) -> None:
    kind = "f" if t.dtype.is_float else "i" if t.dtype.is_int else "b"
    words = {"f": "float", "i": "integer", "b": "boolean (i1)"}
    need(kind in kinds, f"takes {' or '.join(words[k] for k in kinds)} elements, got {t.dtype}")


def _unary(name: str, kinds: str, meaning: Callable[[Array], Any], vjp: Vjp) -> Op:
    def types(operand: TensorType) -> TensorType:
        _accepts(kinds, operand)
        return operand

    return define(name, "operand", types=types, numpy=nm.widened(meaning), vjp=vjp, traits=(Trait.elementwise,))


def _same_types(lhs: TensorType, rhs: TensorType) -> None:
    need(lhs.dtype is rhs.dtype, f"lhs is {lhs.dtype}, rhs {rhs.dtype}; convert one of them")
    need(lhs.shape == rhs.shape, f"shapes differ: {lhs} and {rhs}")


def _binary(name: str, kinds: str, meaning: Callable[[Array, Array], Any], vjp: Vjp, *traits: Trait) -> Op:
    def types(lhs: TensorType, rhs: TensorType) -> TensorType:
        _same_types(lhs, rhs)
        _accepts(kinds, lhs)
        return lhs

    return define(name, "lhs rhs", types=types, numpy=nm.widened(meaning), vjp=vjp, traits=(Trait.elementwise, *traits))


_C = Trait.commutative
ADD = _binary("add", "fi", np.add, g.add, _C)
SUBTRACT = _binary("subtract", "fi", np.subtract, g.subtract)
MULTIPLY = _binary("multiply", "fi", np.multiply, g.multiply, _C)
DIVIDE = _binary("divide", "fi", nm.divide, g.divide)
REMAINDER = _binary("remainder", "fi", nm.remainder, g.remainder)
MAXIMUM = _binary("maximum", "fi", np.maximum, g.maximum, _C)
MINIMUM = _binary("minimum", "fi", np.minimum, g.minimum, _C)
POWER = _binary("power", "f", np.power, g.power)
AND = _binary("and", "ib", np.bitwise_and, g.none, _C)
OR = _binary("or", "ib", np.bitwise_or, g.none, _C)
XOR = _binary("xor", "ib", np.bitwise_xor, g.none, _C)
SHIFT_LEFT = _binary("shift_left", "i", nm.shift_left, g.none)
SHIFT_RIGHT_LOGICAL = _binary("shift_right_logical", "i", nm.shift_right_logical, g.none)
SHIFT_RIGHT_ARITHMETIC = _binary("shift_right_arithmetic", "i", nm.shift_right_arithmetic, g.none)

NEGATE = _unary("negate", "fi", np.negative, g.negate)
ABS = _unary("abs", "fi", np.abs, g.abs_)
SIGN = _unary("sign", "fi", np.sign, g.none)
FLOOR = _unary("floor", "f", np.floor, g.none)
CEIL = _unary("ceil", "f", np.ceil, g.none)
ROUND = _unary("round_nearest_even", "f", np.rint, g.none)
EXP = _unary("exponential", "f", np.exp, g.exp)
EXPM1 = _unary("exponential_minus_one", "f", np.expm1, g.expm1)
LOG = _unary("log", "f", np.log, g.log)
LOG1P = _unary("log_plus_one", "f", np.log1p, g.log1p)
ERF = _unary("erf", "f", nm.erf, g.erf)
LOGISTIC = _unary("logistic", "f", nm.logistic, g.logistic)
TANH = _unary("tanh", "f", np.tanh, g.tanh)
SINE = _unary("sine", "f", np.sin, g.sin)
COSINE = _unary("cosine", "f", np.cos, g.cos)
SQRT = _unary("sqrt", "f", np.sqrt, g.sqrt)
RSQRT = _unary("rsqrt", "f", nm.rsqrt, g.rsqrt)
NOT = _unary("not", "ib", np.invert, g.none)


def _is_finite_types(operand: TensorType) -> TensorType:
    _accepts("f", operand)
    return operand.with_dtype(DType.i1)


IS_FINITE = define(
    "is_finite", "operand", types=_is_finite_types, numpy=np.isfinite, vjp=g.none, traits=(Trait.elementwise,)
)

_COMPARE = {
    "EQ": np.equal, "NE": np.not_equal, "LT": np.less,
    "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
}  # fmt: skip


def _compare_types(lhs: TensorType, rhs: TensorType, *, direction: str) -> TensorType:
    _same_types(lhs, rhs)
    need(direction in _COMPARE, f"direction {direction!r} is not one of {', '.join(_COMPARE)}")
    return lhs.with_dtype(DType.i1)


COMPARE = define(
    "compare", "lhs rhs", attrs={"direction": Attr("str")}, types=_compare_types,
    numpy=lambda a, b, *, direction: _COMPARE[direction](a, b), vjp=g.none, traits=(Trait.elementwise,),
)  # fmt: skip


def _select_types(pred: TensorType, on_true: TensorType, on_false: TensorType) -> TensorType:
    need(pred.dtype is DType.i1, f"pred is {pred.dtype}, not i1")
    need(on_true == on_false, f"on_true is {on_true}, on_false {on_false}")
    need(pred.shape == on_true.shape, f"pred has shape {pred}, the choices {on_true}")
    return on_true


SELECT = define(
    "select", "pred on_true on_false", types=_select_types, numpy=np.where, vjp=g.select, traits=(Trait.elementwise,)
)


def _clamp_types(min: TensorType, operand: TensorType, max: TensorType) -> TensorType:
    need(min == operand == max, f"min is {min}, operand {operand}, max {max}")
    _accepts("fi", operand)
    return operand


CLAMP = define(
    "clamp", "min operand max", types=_clamp_types, numpy=lambda a, x, b: np.minimum(np.maximum(x, a), b),
    vjp=g.clamp, traits=(Trait.elementwise,),
)  # fmt: skip

CONVERT = define(
    "convert", "operand", attrs={"dtype": Attr("dtype")}, types=lambda x, *, dtype: x.with_dtype(dtype),
    numpy=nm.convert, vjp=g.convert, traits=(Trait.elementwise,),
)  # fmt: skip


def _bitcast_types(operand: TensorType, *, dtype: DType) -> TensorType:
    need(
        operand.dtype.bits == dtype.bits and DType.i1 not in (operand.dtype, dtype),
        f"{operand.dtype} and {dtype} have different widths, or are i1",
    )
    return operand.with_dtype(dtype)


BITCAST = define(
    "bitcast_convert", "operand", attrs={"dtype": Attr("dtype")}, types=_bitcast_types,
    numpy=lambda x, *, dtype: np.asarray(x, order="C").view(dtype.numpy), vjp=g.none, traits=(Trait.elementwise,),
)  # fmt: skip


def _apply(op: Op, *operands: Any, **attrs: Any) -> Value:
    return make(op, *aligned(op.name, *operands), **attrs).values[0]


def add(a: Any, b: Any) -> Value:
    """a + b."""
    return _apply(ADD, a, b)


def subtract(a: Any, b: Any) -> Value:
    """a - b."""
    return _apply(SUBTRACT, a, b)


def multiply(a: Any, b: Any) -> Value:
    """a * b."""
    return _apply(MULTIPLY, a, b)


def divide(a: Any, b: Any) -> Value:
    """a / b; integers truncate toward zero."""
    return _apply(DIVIDE, a, b)


def remainder(a: Any, b: Any) -> Value:
    """a - b*trunc(a/b): the sign is a's, as C's fmod and StableHLO."""
    return _apply(REMAINDER, a, b)


def maximum(a: Any, b: Any) -> Value:
    """The larger; NaN if either is."""
    return _apply(MAXIMUM, a, b)


def minimum(a: Any, b: Any) -> Value:
    """The smaller; NaN if either is."""
    return _apply(MINIMUM, a, b)


def power(a: Any, b: Any) -> Value:
    """a to the power b, floats."""
    return _apply(POWER, a, b)


def logical_and(a: Any, b: Any) -> Value:
    """Bitwise and."""
    return _apply(AND, a, b)


def logical_or(a: Any, b: Any) -> Value:
    """Bitwise or."""
    return _apply(OR, a, b)


def logical_xor(a: Any, b: Any) -> Value:
    """Bitwise exclusive or."""
    return _apply(XOR, a, b)


def shift_left(a: Any, b: Any) -> Value:
    """a << b; 0 from the width on."""
    return _apply(SHIFT_LEFT, a, b)


def shift_right_logical(a: Any, b: Any) -> Value:
    """a >> b with zeros moved in."""
    return _apply(SHIFT_RIGHT_LOGICAL, a, b)


def shift_right_arithmetic(a: Any, b: Any) -> Value:
    """a >> b with the sign moved in."""
    return _apply(SHIFT_RIGHT_ARITHMETIC, a, b)


def negate(x: Any) -> Value:
    """-x."""
    return _apply(NEGATE, x)


def abs(x: Any) -> Value:
    """|x|."""
    return _apply(ABS, x)


def sign(x: Any) -> Value:
    """-1, 0 or 1; NaN stays."""
    return _apply(SIGN, x)


def floor(x: Any) -> Value:
    """Rounded down."""
    return _apply(FLOOR, x)


def ceil(x: Any) -> Value:
    """Rounded up."""
    return _apply(CEIL, x)


def round(x: Any) -> Value:
    """Rounded to nearest, halves to even."""
    return _apply(ROUND, x)


def exp(x: Any) -> Value:
    """e to the power x."""
    return _apply(EXP, x)


def expm1(x: Any) -> Value:
    """exp(x) - 1, exact near 0."""
    return _apply(EXPM1, x)


def log(x: Any) -> Value:
    """Natural logarithm."""
    return _apply(LOG, x)


def log1p(x: Any) -> Value:
    """log(1 + x), exact near 0."""
    return _apply(LOG1P, x)


def erf(x: Any) -> Value:
    """Gauss' error function."""
    return _apply(ERF, x)


def logistic(x: Any) -> Value:
    """1 / (1 + exp(-x)), without overflow."""
    return _apply(LOGISTIC, x)


def tanh(x: Any) -> Value:
    """Hyperbolic tangent."""
    return _apply(TANH, x)


def sin(x: Any) -> Value:
    """Sine, x in radians; compiled for a CPU it is NaN where |x| is 2^54 or more."""
    return _apply(SINE, x)


def cos(x: Any) -> Value:
    """Cosine, x in radians; compiled for a CPU it is NaN where |x| is 2^54 or more."""
    return _apply(COSINE, x)


def sqrt(x: Any) -> Value:
    """Square root; NaN below 0."""
    return _apply(SQRT, x)


def rsqrt(x: Any) -> Value:
    """1 / sqrt(x)."""
    return _apply(RSQRT, x)


def logical_not(x: Any) -> Value:
    """Bitwise not."""
    return _apply(NOT, x)


def is_finite(x: Any) -> Value:
    """Neither NaN nor infinite, as i1."""
    return _apply(IS_FINITE, x)


def compare(a: Any, b: Any, direction: str) -> Value:
    """a EQ|NE|LT|LE|GT|GE b, as i1; NaN is unequal to all."""
    return _apply(COMPARE, a, b, direction=direction)


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
    """on_true where pred, else on_false; the side not taken never matters, NaN included."""
    return make(SELECT, *aligned_select(pred, on_true, on_false)).values[0]


def clamp(low: Any, x: Any, high: Any) -> Value:
    """min(max(x, low), high); NaN stays."""
    return _apply(CLAMP, low, x, high)


def convert(x: Any, dtype: DTypeLike) -> Value:
    """Elements converted; float to integer truncates, saturates, and takes NaN to 0."""
    (v,) = aligned("convert", x)
    out = make(CONVERT, v, dtype=dtype).values[0]
    return v if out.type == v.type else out


def bitcast_convert(x: Any, dtype: DTypeLike) -> Value:
    """The same bits read as another dtype of the same width."""
    return _apply(BITCAST, x, dtype=dtype)

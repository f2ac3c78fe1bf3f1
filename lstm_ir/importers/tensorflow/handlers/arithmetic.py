"""Elementwise ops: arithmetic, comparison, choice, activations, conversions."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers import sizes as s
from lstm_ir.importers.complex_numbers import Complex, from_real
from lstm_ir.importers.limits import larger, smaller
from lstm_ir.importers.operands import Result
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import SizeArray, each
from lstm_ir.importers.table import ALL
from lstm_ir.importers.tensorflow.call import Call
from lstm_ir.importers.tensorflow.table import taken
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.activations import SELU_SCALE, at_least, at_most
from lstm_ir.ops.primitive.custom_gradient import unknown_gradient

Function = Callable[..., Any]


def _unary(names: str, function: Callable[[Value], Value], rule: s.Rule | None = None) -> None:
    for name in names.split():
        taken(name, sizes=rule)(lambda c: function(c.value(0)))


def _binary(names: str, function: Function, rule: s.Rule | None = None) -> None:
    for name in names.split():
        taken(name, sizes=rule)(lambda c: function(c.value(0), c.value(1)))


_unary("Abs", li.abs)
_unary("Neg", li.negate, each(lambda d: dims.mul(d, -1)))
_unary("Exp", li.exp)
_unary("Expm1", li.expm1)
_unary("Log", li.log)
_unary("Log1p", li.log1p)
_unary("Sqrt", li.sqrt)
_unary("Rsqrt", li.rsqrt)
_unary("Square", lambda x: x * x)
_unary("Sin", li.sin)
_unary("Cos", li.cos)
_unary("Asin", li.asin)
_unary("Acos", li.acos)
_unary("Atan", li.atan)
_unary("Tanh", li.tanh)
_unary("Sigmoid", li.logistic)
_unary("Erf", li.erf)
_unary("Erfc", lambda x: 1.0 - li.erf(x))  # as the project's gelu: right to a rounding of 1, where it is small too
_unary("Floor", li.floor)
_unary("Ceil", li.ceil)
_unary("Round Rint", lambda x: li.round(x) if x.dtype.is_float else x)
_unary("Sign", li.sign)
_unary("Reciprocal Inv", li.reciprocal)
_unary("LogicalNot", li.logical_not)
_unary("Relu", li.relu)
_unary("Relu6", lambda x: at_most(at_least(x, 0), 6))
_unary("Elu", li.elu)
_unary("Selu", lambda x: li.where(li.equal(x, 0.0), x * SELU_SCALE, li.selu(x)))  # the slope at 0
_unary("Softplus", li.softplus)
_unary("Softsign", li.softsign)
_unary("IsNan", li.is_nan)
_unary("IsInf", li.is_inf)
_unary("IsFinite", li.is_finite)

_binary("Add AddV2", li.add, each(dims.add))
_binary("Sub", li.subtract, each(s.minus))
_binary("Mul", li.multiply, each(dims.mul))
_binary("Maximum", larger, each(s.larger_or_clamped))
_binary("Minimum", smaller, each(s.smaller))
_binary("Less", li.less, each(lambda a, b: not s.not_below(a, b)))
_binary("LessEqual", li.less_equal, each(lambda a, b: s.not_below(b, a)))
_binary("Greater", li.greater, each(lambda a, b: not s.not_below(b, a)))
_binary("GreaterEqual", li.greater_equal, each(s.not_below))
_binary("Atan2", li.atan2)
_binary("LogicalAnd", li.logical_and)
_binary("LogicalOr", li.logical_or)
_binary("SquaredDifference", lambda a, b: (a - b) * (a - b))


@taken("Equal", sizes=each(s.same))
def equal(c: Call) -> Value:
    """Whether elements are equal; operands that cannot be broadcast are refused."""
    _shapes_agree(c)
    return li.equal(c.value(0), c.value(1))


@taken("NotEqual", sizes=each(lambda a, b: not s.same(a, b)))
def not_equal(c: Call) -> Value:
    """Whether elements differ."""
    _shapes_agree(c)
    return li.not_equal(c.value(0), c.value(1))


def _shapes_agree(c: Call) -> None:
    if c.has_attribute("incompatible_shape_error"):
        c.flag("incompatible_shape_error")


def _floor_div(a: dims.Dim, b: dims.Dim) -> dims.Dim:
    if isinstance(b, int) and b > 0:
        return dims.floordiv(a, b)
    return a // b if isinstance(a, int) and isinstance(b, int) and b else s.divided(a, b)


def _floor_mod(a: dims.Dim, b: dims.Dim) -> dims.Dim:
    return s.minus(a, dims.mul(_floor_div(a, b), b))


def _float_quotient(c: Call) -> tuple[Value, Value]:
    a, b = c.value(0), c.value(1)
    if not a.dtype.is_float:
        raise NodeRefusedError(f"a quotient of {a.dtype} is not taken")
    return a, b


_binary("Div TruncateDiv", li.divide, each(s.divided))


@taken("RealDiv", refused="integers")
def real_div(c: Call) -> Value:
    """a / b."""
    return li.divide(*_float_quotient(c))


@taken("DivNoNan", refused="integers")
def div_no_nan(c: Call) -> Value:
    """a / b, 0 where b is 0."""
    a, b = _float_quotient(c)
    none = li.equal(b, 0)
    return li.where(none, li.zeros_like(a / b), a / li.where(none, li.ones(b.shape, b.dtype), b))


@taken("FloorDiv", sizes=each(_floor_div))
def floor_div(c: Call) -> Value:
    """a / b, rounded down."""
    a, b = c.value(0), c.value(1)
    return li.floor(a / b) if a.dtype.is_float else li.floor_divide(a, b)


@taken("FloorMod", sizes=each(_floor_mod))
def floor_mod(c: Call) -> Value:
    """What a division leaves, with the sign of the divisor."""
    a, b = c.value(0), c.value(1)
    return li.mod(a, b)


@taken("Pow", refused="a base of integers with an exponent that is not a known number 0 to 16")
def power(c: Call) -> Value:
    """a to the power b; a known exponent 2 is a product."""
    x, p = c.value(0), c.value(1)
    known = c.known(1)
    exponent = float(known.reshape(-1)[0]) if known is not None and known.size == 1 and known.ndim <= x.rank else None
    if exponent == 2:
        return x * x
    if x.dtype.is_float:
        return li.power(x, p)
    if exponent not in range(17):
        raise NodeRefusedError("a power of integers needs one known exponent, 0 to 16")
    return reduce(li.multiply, [x] * int(exponent or 0), li.full(x.shape, 1, x.dtype))


@taken("AddN")
def add_n(c: Call) -> Value:
    """The sum of the operands."""
    return reduce(li.add, c.values(1), c.value(0))


@taken("SelectV2", sizes=each(s.choice))
def select(c: Call) -> Value:
    """The second operand where the first is true, else the third; all broadcast."""
    return li.where(c.value(0), c.value(1), c.value(2))


@taken("Select", sizes=each(s.choice))
def select_rows(c: Call) -> Value:
    """The second operand where the first is true, else the third; a condition of one axis chooses whole rows."""
    pred, a, b = c.value(0), c.value(1), c.value(2)
    if pred.rank == 1 and a.rank > 1:
        c.agree("rows of the condition and of the operands", pred.shape[0], a.shape[0])
        pred = li.broadcast_in_dim(pred, a.shape, (0,))
    return li.where(pred, a, b)


@taken("LeakyRelu")
def leaky_relu(c: Call) -> Value:
    """Below 0 multiplied by alpha."""
    return li.leaky_relu(c.value(0), c.real("alpha", 0.2))


@taken("ClipByValue")
def clip(c: Call) -> Value:
    """Held between two bounds."""
    return li.clip(c.value(0), c.value(1), c.value(2))


@taken("Cast", refused="text, and elements that no other op takes", complex=True)
def cast(c: Call) -> Result | Complex:
    """Elements converted; a float becomes an integer by truncation, a complex number its real part."""
    parts = c.parts("DstT")
    if c.flag("Truncate"):
        raise NodeRefusedError("Truncate is not taken")
    z = c.complex(0)
    if parts is not None:
        return from_real(c.value(0), parts) if z is None else z.each(lambda x: li.convert(x, parts))
    to = c.dtype("DstT")
    if z is not None:
        return li.convert(z.real, to)
    v = c.raw(0)
    if isinstance(v, SizeArray) and to in (DType.i32, DType.i64):
        return SizeArray(v.array, to)
    x = c.value(0)
    return li.not_equal(x, 0) if to is DType.i1 and x.dtype is not DType.i1 else li.convert(x, to)


@taken("StopGradient", moves=(ALL,))
def stop_gradient(c: Call) -> Any:
    """The operand, through which no gradient goes."""
    v = c.things[0]
    return li.stop_gradient(v) if isinstance(v, Value) and v.dtype.is_float else v


@taken("PreventGradient")
def prevent_gradient(c: Call) -> Any:
    """The operand, whose gradient is refused with TensorFlow's reason."""
    return unknown_gradient(c.value(0), f"{c.node} (PreventGradient): {c.word('message', 'no gradient')}")


@taken("Identity", "Snapshot", "CheckNumerics", "EnsureShape", moves=(ALL,))
def identity(c: Call) -> Any:
    """The operand."""
    for name in ("message", "shape"):
        if c.has_attribute(name):
            c.word(name) if name == "message" else c.shape(name)
    return c.things[0]


@taken("IdentityN")
def identities(c: Call) -> list[Any]:
    """The operands."""
    return list(c.things)

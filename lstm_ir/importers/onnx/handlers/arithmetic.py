"""Elementwise ops: arithmetic, comparison, choice, activations, conversions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from lstm_ir import ops as li
from lstm_ir.importers import sizes as s
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.narrow import LIMITS, Narrow, name_of, narrowed
from lstm_ir.importers.onnx.table import Build, taken
from lstm_ir.importers.onnx.tensors import DTYPES, dtype_named
from lstm_ir.importers.operands import Result
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import SizeArray, chained, each
from lstm_ir.importers.table import ALL
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.broadcast import common_shape

Function = Callable[..., Any]
ONNX_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def _register(name: str, versions: tuple[int, ...], build: Build, rule: s.Rule | None = None) -> None:
    taken(name, *versions, sizes=rule)(build)


def _unary(
    name: str, versions: tuple[int, ...], function: Callable[[Value], Value], rule: s.Rule | None = None
) -> None:
    _register(name, versions, lambda c: function(c.value(0)), rule)


def _binary(name: str, versions: tuple[int, ...], function: Function, rule: s.Rule | None = None) -> None:
    _register(name, versions, lambda c: function(c.value(0), c.value(1)), rule)


def _logic(name: str, version: int, function: Function, operands: int) -> None:
    """An op over booleans alone: of integers the op of the graph would combine bits."""

    def build(c: Call) -> Value:
        values = [c.value(i) for i in range(operands)]
        for i, v in enumerate(values):
            if v.dtype is not DType.i1:
                raise NodeRefusedError(f"operand {i} is {v.type}, not of booleans")
        out: Value = function(*values)
        return out

    _register(name, (version,), build)


def _variadic(name: str, versions: tuple[int, ...], function: Function, rule: s.Rule | None = None) -> None:
    def build(c: Call) -> Value:
        if not c.inputs:
            raise NodeRefusedError("it has no operands")
        out: Value = reduce(function, c.values())
        return out

    _register(name, versions, build, rule)


_unary("Abs", (6, 13), li.abs)
_unary("Neg", (6, 13), li.negate, each(lambda d: dims.mul(d, -1)))
_unary("Exp", (6, 13), li.exp)
_unary("Log", (6, 13), li.log)
_unary("Sqrt", (6, 13), li.sqrt)
_unary("Sin", (7, 22), li.sin)
_unary("Cos", (7, 22), li.cos)
_unary("Asin", (7, 22), li.asin)
_unary("Acos", (7, 22), li.acos)
_unary("Atan", (7, 22), li.atan)
_unary("Tanh", (6, 13), li.tanh)
_unary("Sigmoid", (6, 13), li.logistic)
_unary("Erf", (9, 13), li.erf)
_unary("Floor", (6, 13), li.floor)
_unary("Ceil", (6, 13), li.ceil)
_unary("Round", (11, 22), li.round)
_unary("Sign", (9, 13), li.sign)
_unary("Reciprocal", (6, 13), li.reciprocal)
_unary("Relu", (6, 13, 14), li.relu)
_unary("Softplus", (1, 22), li.softplus)
_unary("Softsign", (1, 22), li.softsign)
_unary("Mish", (18, 22), li.mish)
_unary("HardSwish", (14, 22), li.hard_swish)

_binary("Add", (7, 13, 14), li.add, each(dims.add))
_binary("Sub", (7, 13, 14), li.subtract, each(s.minus))
_binary("Mul", (7, 13, 14), li.multiply, each(dims.mul))
_binary("Div", (7, 13, 14), li.divide, each(s.divided))
_binary("Equal", (7, 11, 13, 19), li.equal, each(s.same))
_binary("Less", (7, 9, 13), li.less, each(lambda a, b: not s.not_below(a, b)))
_binary("LessOrEqual", (12, 16), li.less_equal, each(lambda a, b: s.not_below(b, a)))
_binary("Greater", (7, 9, 13), li.greater, each(lambda a, b: not s.not_below(b, a)))
_binary("GreaterOrEqual", (12, 16), li.greater_equal, each(s.not_below))

_logic("Not", 1, li.logical_not, 1)
_logic("And", 7, li.logical_and, 2)
_logic("Or", 7, li.logical_or, 2)
_logic("Xor", 7, li.logical_xor, 2)

_variadic("Min", (6, 8, 12, 13), li.minimum, chained(s.smaller))
_variadic("Max", (6, 8, 12, 13), li.maximum, chained(s.larger_or_clamped))
_variadic("Sum", (6, 8, 13), li.add)


@taken("Mean", 6, 8, 13)
def mean(c: Call) -> Value:
    """The sum by the number of operands."""
    if not c.inputs:
        raise NodeRefusedError("it has no operands")
    out: Value = reduce(li.add, c.values())
    return li.divide(out, float(len(c.inputs)))


@taken("Pow", 7, 12, 13, 15)
def power(c: Call) -> Value:
    """The base's elements decide the result's; a small known exponent is a product."""
    x, p = c.value(0), c.value(1)
    known = c.known(1)
    exponent = float(known.reshape(-1)[0]) if known is not None and known.size == 1 else math.nan
    scalar = known is not None and known.ndim <= x.rank
    if scalar and exponent == 2:
        return x * x
    if x.dtype.is_float:
        return li.power(x, li.convert(p, x.dtype))
    if scalar and exponent in range(17):
        return reduce(li.multiply, [x] * int(exponent), li.full(x.shape, 1, x.dtype))
    if p.dtype.is_float:  # in f64, as the integer of a power of floats
        return li.convert(li.power(li.convert(x, DType.f64), li.convert(p, DType.f64)), x.dtype)
    return _integer_power(x, li.convert(p, DType.i64))


def _integer_power(x: Value, p: Value) -> Value:
    """x to the power p, by squares. 2 to the 63 does not fit, so from 64 on an exponent says only whether it is even; a
    power below 0 is 0, but for x of 1 and -1.
    """
    odd = li.not_equal(li.remainder(p, 2), 0)
    one, top = li.full((), 1, x.dtype), li.full((), 62, DType.i64)
    few = li.where(li.less(p, 64), li.maximum(p, 0), li.where(odd, top + 1, top))
    found, square = li.broadcast_to(one, common_shape("power", [x.shape, p.shape])), x
    for _ in range(6):
        found = li.where(li.not_equal(li.remainder(few, 2), 0), found * square, found)
        few = li.convert(li.shift_right_logical(few, li.constant(np.int64(1))), DType.i64)
        square = square * square
    below = li.where(li.equal(x, 1), one, li.full((), 0, x.dtype))
    if x.dtype.is_signed:
        minus = li.where(odd, li.full((), -1, x.dtype), one)
        below = li.where(li.equal(x, -1), minus, below)
    return li.where(li.less(p, 0), below, found)


def _mod_of_sizes(a: dims.Dim, b: dims.Dim) -> dims.Dim:
    """Of two that are not below 0, where the sign of what is left does not depend on `fmod`."""
    if a != b and not (dims.at_least(a, 0) and dims.at_least(b, 1)):
        raise s.UndecidedError
    return s.minus(a, dims.mul(s.divided(a, b), b))


@taken("Mod", 10, 13, 28, sizes=each(_mod_of_sizes), refused="floats without fmod")
def mod(c: Call) -> Value:
    """What a division leaves, with the sign of the divisor, or with fmod of the dividend."""
    a, b = c.value(0), c.value(1)
    if c.flag("fmod"):
        return li.remainder(a, b)
    if a.dtype.is_float:
        raise NodeRefusedError(f"fmod is 0 for {a.dtype}; it is 1 for floats")
    return li.mod(a, b)


@taken("Where", 9, 16, sizes=each(s.choice))
def where(c: Call) -> Value:
    """The first where true, else the second."""
    return li.where(c.value(0), c.value(1), c.value(2))


@taken("Clip", 6, 11, 12, 13)
def clip(c: Call) -> Value:
    """Held between bounds: attributes at first, later operands of one element."""
    x = c.value(0)
    if c.opset < 11:
        # The defaults are the ends of f32, so that nothing stays infinite; in f16 these are infinite themselves.
        most = math.inf if x.dtype.bits == 16 else float(np.finfo(np.float32).max)
        return li.clip(x, c.real("min", -most), c.real("max", most))
    return li.clip(x, *(None if v is None else li.reshape(v, ()) for v in (c.maybe(1), c.maybe(2))))


def _sizes_keep(c: Call, to: DType) -> Result | None:
    v = c.raw(0)
    return SizeArray(v.array, to) if isinstance(v, SizeArray) and to in (DType.i64, DType.i32) else None


def converted(x: Value, to: DType) -> Value:
    """Elements of another type; what is not 0 is true."""
    return li.not_equal(x, 0) if to is DType.i1 and x.dtype is not DType.i1 else li.convert(x, to)


def _cast(c: Call, kind: str) -> Any:
    """Operand 0 as elements of a type by ONNX's name."""
    for name in ("saturate", "round_mode"):
        if c.has_attribute(name):  # about eight-bit floats
            c.integer(name) if name == "saturate" else c.word(name)
    v = None if kind not in LIMITS and c.has(0) and isinstance(c.inputs[0], SizeArray) else c.converts(0)
    x = v.value if isinstance(v, Narrow) else v
    if kind in LIMITS:
        assert x is not None
        return v if isinstance(v, Narrow) and v.kind == kind else narrowed(x, kind)
    to = dtype_named(kind)
    kept = _sizes_keep(c, to) if x is None else None
    return converted(c.value(0) if x is None else x, to) if kept is None else kept


@taken("Cast", 6, 9, 13, 19, 21, 23, 24, 25, 28, refused="text, elements that no other op takes, to i4, u4 and u64")
def cast(c: Call) -> Any:
    """Elements converted; a float becomes an integer by truncation."""
    return _cast(c, name_of(c.integer("to")))


@taken("CastLike", 15, 19, 21, 23, 24, 25)
def cast_like(c: Call) -> Any:
    """Elements converted to those of the second operand."""
    like = c.converts(1)
    return _cast(c, like.kind if isinstance(like, Narrow) else ONNX_NAMES[like.dtype])


@taken("Identity", 1, 13, 14, 16, 19, 21, 23, 24, 25, moves=(ALL,), refused="optionals")
def identity(c: Call) -> Any:
    """The operand, a sequence too."""
    return c.sequence(0) if c.is_sequence(0) else c.value(0)


@taken("Dropout", 7, 10, 12, 13, 22, refused="training mode that only a call knows")
def dropout(c: Call) -> tuple[Value, Value]:
    """The operand, and a mask of true, of ones before operator set 10; in training a share of 0, the rest larger.

    What is 0 is drawn by `seed` and the step.
    """
    x = c.value(0)
    ratio = c.real("ratio", 0.5) if c.opset < 12 else 0.5
    seed = c.integer("seed") if c.has_attribute("seed") else None
    if c.has(1):
        ratio = float(c.number(1, "the ratio"))
    if not (c.has(2) and bool(c.number(2, "training_mode"))) or ratio == 0:
        return x, li.ones(x.shape, DType.i1 if c.opset >= 10 else x.dtype)
    if not 0 <= ratio < 1:
        raise NodeRefusedError(f"the ratio is {ratio}")
    mask = li.dropout(li.ones(x.shape, x.dtype), ratio, c.key(seed))
    return x * mask, li.greater(mask, 0)


@taken("PRelu", 7, 9, 16)
def prelu(c: Call) -> Value:
    """Below 0 multiplied by the slope."""
    return li.prelu(c.value(0), c.value(1))


@taken("LeakyRelu", 6, 16)
def leaky_relu(c: Call) -> Value:
    """Below 0 multiplied by alpha."""
    return li.leaky_relu(c.value(0), c.real("alpha", 0.01))


@taken("ThresholdedRelu", 10, 22)
def thresholded_relu(c: Call) -> Value:
    """0 up to alpha."""
    return li.thresholded_relu(c.value(0), c.real("alpha", 1.0))


@taken("Elu", 6, 22)
def elu(c: Call) -> Value:
    """Below 0 alpha (exp(x) - 1)."""
    return li.elu(c.value(0), c.real("alpha", 1.0))


@taken("Celu", 12, 28)
def celu(c: Call) -> Value:
    """Below 0 alpha (exp(x / alpha) - 1)."""
    return li.celu(c.value(0), c.real("alpha", 1.0))


@taken("Swish", 24)
def swish(c: Call) -> Value:
    """x times the sigmoid of alpha x."""
    return li.silu(c.value(0), c.real("alpha", 1.0))


@taken("Selu", 6, 22)
def selu(c: Call) -> Value:
    """Elu, scaled."""
    alpha, gamma = c.real("alpha", 1.67326319217681884765625), c.real("gamma", 1.05070102214813232421875)
    return li.selu(c.value(0), alpha, gamma)


@taken("HardSigmoid", 6, 22)
def hard_sigmoid(c: Call) -> Value:
    """alpha x + beta, between 0 and 1."""
    return li.hard_sigmoid(c.value(0), c.real("alpha", 0.2), c.real("beta", 0.5))


@taken("Gelu", 20)
def gelu(c: Call) -> Value:
    """x times the normal distribution below x, exact or by tanh."""
    return li.gelu(c.value(0), c.word("approximate", "none"))

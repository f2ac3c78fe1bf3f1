"""Functions of one tensor, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.torch.call import Call, as_value
from lstm_ir.importers.torch.handlers.arithmetic import truncated
from lstm_ir.importers.torch.table import taken
from lstm_ir.ir.graph import Value
from lstm_ir.ops.primitive.activations import at_least, at_most
from lstm_ir.ops.primitive.precision import widened

Function = Callable[[Value], Value]


def _held(x: Value, low: float, high: float) -> Value:
    """x between two numbers; at them its gradient is 0, as PyTorch has it here, and not in clamp."""
    return at_most(at_least(x, low), high) if x.dtype.is_float else li.clip(x, low, high)


def _hard_swish(x: Value) -> Value:
    """x (x / 6 + 1 / 2), from 3 on x, and 0 up to -3, where it is flat for PyTorch."""
    inside = li.select(li.less(x, 3.0), x * (x * (1 / 6) + 0.5), x)
    return li.select(li.less_equal(x, -3.0), x * 0.0, inside)


def _sinh(x: Value) -> Value:
    """2 sinh(x / 2) cosh(x / 2): e^x may be too large for the type where half of it is not."""
    half = x * 0.5
    return ((li.expm1(half) - li.expm1(-half)) * 0.5) * (li.exp(half) + li.exp(-half))


def _cosh(x: Value) -> Value:
    """Half of e^x and e^-x, each the square of a root that is not too large."""
    up, down = li.exp(x * 0.5), li.exp(x * -0.5)
    return up * (up * 0.5) + down * (down * 0.5)


def _unary(name: str, function: Function) -> None:
    @taken(f"aten.{name}.default", rows=True)
    def build(c: Call) -> Value:
        return function(c.operand("self", c.dtype))


def _tested(name: str, function: Function) -> None:
    """A question to which each element is an answer."""

    @taken(f"aten.{name}.default", rows=True)
    def build(c: Call) -> Value:
        x = c.tensor("self")
        if x.dtype.is_float:
            return function(x)
        return li.full(x.shape, name == "isfinite", "i1")


for _name, _function in dict[str, Function](
    relu=li.relu, tanh=li.tanh, sigmoid=li.logistic, exp=li.exp, log=li.log, log1p=li.log1p, expm1=li.expm1,
    sqrt=li.sqrt, rsqrt=li.rsqrt, abs=li.abs, neg=li.negate, sin=li.sin, cos=li.cos, sign=li.sign, erf=li.erf,
    mish=li.mish, log_sigmoid=li.log_sigmoid, silu=li.silu, hardswish=lambda x: widened(x, _hard_swish), selu=li.selu,
    square=li.square, reciprocal=li.reciprocal, asin=li.asin, acos=li.acos, atan=li.atan,
    relu6=lambda x: _held(x, 0.0, 6.0),
    hardsigmoid=lambda x: li.hard_sigmoid(x, 1 / 6, 0.5),
    log2=lambda x: li.log(x) * (1 / math.log(2)),
    log10=lambda x: li.log(x) * (1 / math.log(10)),
    exp2=lambda x: li.exp(x * math.log(2)),
    tan=lambda x: li.sin(x) / li.cos(x),
    sinh=lambda x: widened(x, _sinh), cosh=lambda x: widened(x, _cosh),
    frac=lambda x: x - truncated(x),
).items():  # fmt: skip
    _unary(_name, _function)
_tested("isnan", li.is_nan)
_tested("isinf", li.is_inf)
_tested("isfinite", li.is_finite)


def _whole(name: str, function: Function) -> None:
    @taken(f"aten.{name}.default", rows=True)
    def build(c: Call) -> Value:
        x = c.tensor("self")
        return function(x) if x.dtype.is_float else x


for _name, _function in {"floor": li.floor, "ceil": li.ceil, "trunc": truncated, "round": li.round}.items():
    _whole(_name, _function)


@taken("aten.elu.default", rows=True)
def elu(c: Call) -> Value:
    """x, or alpha * (exp(x) - 1) below 0; scaled."""
    x, alpha, scale, inner = c.tensor("self"), c.real("alpha", 1.0), c.real("scale", 1.0), c.real("input_scale", 1.0)
    y = li.elu(x, alpha) if inner == 1.0 else li.select(li.greater(x, 0.0), x, alpha * li.expm1(x * inner))
    return y if scale == 1.0 else y * scale


@taken("aten.celu.default", rows=True)
def celu(c: Call) -> Value:
    """x, or alpha * (exp(x / alpha) - 1) below 0."""
    return li.celu(c.tensor("self"), c.real("alpha", 1.0))


@taken("aten.leaky_relu.default", rows=True)
def leaky_relu(c: Call) -> Value:
    """x, or a part of it below 0."""
    return li.leaky_relu(c.tensor("self"), c.real("negative_slope", 0.01))


@taken("aten.prelu.default", "aten._prelu_kernel.default")
def prelu(c: Call) -> Value:
    """x, or a learned part of it below 0: one part, or one for each channel of axis 1."""
    x, slope = c.tensor("self"), c.tensor("weight")
    if slope.rank == 1 and x.rank > 1:
        slope = li.reshape(slope, (slope.shape[0], *(1,) * (x.rank - 2)))
    return li.where(li.greater(x, 0.0), x, x * slope)


@taken("aten.gelu.default", rows=True)
def gelu(c: Call) -> Value:
    """x times the normal distribution below x, or its formula with tanh."""
    return li.gelu(c.tensor("self"), c.word("approximate", "none"))


@taken("aten.hardtanh.default", rows=True)
def hardtanh(c: Call) -> Value:
    """Held between two numbers."""
    return _held(c.tensor("self"), c.real("min_val", -1.0), c.real("max_val", 1.0))


@taken("aten.softplus.default", rows=True)
def softplus(c: Call) -> Value:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold."""
    x, beta, above = c.tensor("self"), c.real("beta", 1.0), c.real("threshold", 20.0)
    return li.select(li.greater(x * beta, above), x, li.softplus(x, beta))


@taken("aten.threshold.default", rows=True)
def threshold(c: Call) -> Value:
    """x where it is above the threshold, else the value."""
    x = c.tensor("self")
    return li.select(li.greater(x, c.operand("threshold", x.dtype)), x, c.operand("value", x.dtype))


@taken("aten.softshrink.default", rows=True)
def softshrink(c: Call) -> Value:
    """x moved towards 0 by lambd."""
    x, by = c.tensor("self"), c.real("lambd", 0.5)
    return li.select(li.greater(x, by), x - by, li.select(li.less(x, -by), x + by, x * 0.0))  # NaN stays


@taken("aten.hardshrink.default", rows=True)
def hardshrink(c: Call) -> Value:
    """x, or 0 where it is not farther than lambd from 0."""
    x, by = c.tensor("self"), c.real("lambd", 0.5)
    return li.select(li.less_equal(li.abs(x), by), as_value(0, x.dtype), x)  # NaN stays


@taken("aten.glu.default")
def glu(c: Call) -> Value:
    """The first half times the sigmoid of the second, along an axis."""
    x = c.tensor("self")
    first, second = li.split(x, 2, c.axis("dim", x.rank, -1))
    return first * li.logistic(second)


@taken("aten.nan_to_num.default", rows=True)
def nan_to_num(c: Call) -> Value:
    """Numbers in place of NaN and of what is not finite."""
    x = c.tensor("self")
    high: Any = c.real("posinf") if c.given("posinf") else None
    low: Any = c.real("neginf") if c.given("neginf") else None
    return li.nan_to_num(x, c.real("nan", 0.0), high, low)

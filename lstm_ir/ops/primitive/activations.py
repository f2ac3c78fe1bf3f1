"""Activations by their names: compositions of elementwise ops.

Gradients at kinks are PyTorch's: 0 for relu and hard_sigmoid, the slope of the left side for leaky_relu,
elu, selu, celu and prelu. NaN stays NaN. 16-bit floats are computed in f32.
"""

from __future__ import annotations

import math
from typing import Any

from lstm_ir.ir import options
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import as_values
from lstm_ir.ops.primitive.precision import floats, numbers, widened

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


def at_least(x: Value, low: float) -> Value:
    """The larger of x and a number, with gradient 0 where they are equal."""
    return e.select(e.less_equal(x, low), constant(low, x.dtype), x)


def at_most(x: Value, high: float) -> Value:
    """The smaller of x and a number, with gradient 0 where they are equal."""
    return e.select(e.greater_equal(x, high), constant(high, x.dtype), x)


def relu(x: Any) -> Value:
    """The larger of x and 0; integers too."""
    return at_least(numbers("relu", x), 0)


def leaky_relu(x: Any, negative_slope: float = 0.01) -> Value:
    """x above 0, negative_slope * x elsewhere."""
    v = floats("leaky_relu", x)
    slope = options.real("leaky_relu", "negative_slope", negative_slope)
    return e.select(e.greater(v, 0.0), v, v * slope)


def prelu(x: Any, slope: Any) -> Value:
    """x above 0, slope * x elsewhere; `slope` is a value that broadcasts."""
    v = floats("prelu", x)
    _, s = as_values("prelu", v, slope)
    return e.select(e.greater(v, 0.0), v, e.multiply(v, s))


def _left_of_zero(x: Value) -> Value:
    """x where it is not above 0, else 0: what an exponential may take."""
    return e.select(e.greater(x, 0.0), constant(0, x.dtype), x)


def elu(x: Any, alpha: float = 1.0) -> Value:
    """x above 0, alpha * (exp(x) - 1) elsewhere."""
    a = options.real("elu", "alpha", alpha)
    return widened(floats("elu", x), lambda v: e.select(e.greater(v, 0.0), v, e.expm1(_left_of_zero(v)) * a))


def selu(x: Any, alpha: float = SELU_ALPHA, scale: float = SELU_SCALE) -> Value:
    """scale * elu(x, alpha), with the numbers of Klambauer et al., "Self-normalizing neural networks", 2017."""
    a, s = options.real("selu", "alpha", alpha), options.real("selu", "scale", scale)
    return widened(floats("selu", x), lambda v: elu(v, a) * s)


def celu(x: Any, alpha: float = 1.0) -> Value:
    """x above 0, alpha * (exp(x / alpha) - 1) elsewhere."""
    a = options.real("celu", "alpha", alpha)
    if a == 0:
        raise options.refuse("celu", "alpha", alpha, "a number other than 0")
    return widened(floats("celu", x), lambda v: e.select(e.greater(v, 0.0), v, e.expm1(_left_of_zero(v) * (1 / a)) * a))


def thresholded_relu(x: Any, threshold: float = 1.0) -> Value:
    """x above the threshold, 0 elsewhere, NaN included."""
    v, least = floats("thresholded_relu", x), options.real("thresholded_relu", "threshold", threshold)
    return e.select(e.greater(v, least), v, constant(0, v.dtype))


def sigmoid(x: Any) -> Value:
    """1 / (1 + exp(-x)), without overflow; the same as `logistic`."""
    return e.logistic(floats("sigmoid", x))


def hard_sigmoid(x: Any, alpha: float = 0.2, beta: float = 0.5) -> Value:
    """alpha * x + beta between 0 and 1; Keras' and ONNX's numbers (PyTorch's alpha is 1/6)."""
    a, b = options.real("hard_sigmoid", "alpha", alpha), options.real("hard_sigmoid", "beta", beta)
    return widened(floats("hard_sigmoid", x), lambda v: at_most(at_least(v * a + b, 0.0), 1.0))


def hard_swish(x: Any) -> Value:
    """x times x / 6 + 1 / 2, the second factor between 0 and 1."""
    return widened(floats("hard_swish", x), lambda v: v * e.clamp(0.0, v * (1 / 6) + 0.5, 1.0))


def softplus(x: Any, beta: float = 1.0) -> Value:
    """log(1 + exp(beta * x)) / beta, without overflow."""
    b = options.real("softplus", "beta", beta)
    if b <= 0:
        raise options.refuse("softplus", "beta", beta, "a number above 0")
    v = floats("softplus", x)
    return widened(v, _softplus if b == 1.0 else lambda v: _softplus(v * b) * (1 / b))


def _softplus(x: Value) -> Value:
    """max(x, 0) + log(1 + exp(-|x|)), where each side of 0 is the whole function: derivatives hold at 0 too."""
    right = e.greater_equal(x, 0.0)
    return e.select(right, x, constant(0, x.dtype)) + e.log1p(e.exp(e.select(right, -x, x)))


def log_sigmoid(x: Any) -> Value:
    """log(sigmoid(x)), exact where the sigmoid underflows."""
    return -softplus(-floats("log_sigmoid", x))


def softsign(x: Any) -> Value:
    """x / (1 + |x|)."""
    return widened(floats("softsign", x), lambda v: v / (1.0 + e.abs(v)))


def silu(x: Any, beta: float = 1.0) -> Value:
    """x * sigmoid(beta * x), also called swish."""
    b = options.real("silu", "beta", beta)
    return widened(floats("silu", x), lambda v: v * e.logistic(v if b == 1.0 else v * b))


def gelu(x: Any, approximate: str = "none") -> Value:
    """x times the share of the normal distribution below x; approximate="tanh" is the formula by tanh."""
    how = options.choice("gelu", "approximate", approximate, ("none", "tanh"))
    return widened(floats("gelu", x), _gelu if how == "none" else _gelu_by_tanh)


def _gelu(x: Value) -> Value:
    return x * 0.5 * (1.0 + e.erf(x * math.sqrt(0.5)))


def _gelu_by_tanh(x: Value) -> Value:
    inside = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (1.0 + e.tanh(inside))


def mish(x: Any) -> Value:
    """x * tanh(softplus(x))."""
    return widened(floats("mish", x), lambda v: v * e.tanh(_softplus(v)))

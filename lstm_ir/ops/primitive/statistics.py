"""Reductions that are compositions: variance, norms, log of a sum of exponentials, the place of the least."""

from __future__ import annotations

import math
from typing import Any

from lstm_ir.ir import options
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import as_values
from lstm_ir.ops.primitive.precision import floats, numbers, widened
from lstm_ir.ops.primitive.reduce import Axes, argmax, count_of, max, mean, min, sum
from lstm_ir.ops.primitive.shape import axes_of, axis_of, reshape


def flat_root(x: Value) -> Value:
    """The square root, with gradient 0 at 0, where that of `sqrt` is infinite."""
    zero = e.equal(x, 0.0)
    return e.select(zero, constant(0, x.dtype), e.sqrt(e.select(zero, constant(1, x.dtype), x)))


def var(x: Any, axis: Axes = None, ddof: int = 0, keepdims: bool = False) -> Value:
    """The variance over `axis` (all without it): squared distances from the mean, divided by n - ddof."""
    return _spread_of("var", x, axis, ddof, keepdims, lambda v: v)


def std(x: Any, axis: Axes = None, ddof: int = 0, keepdims: bool = False) -> Value:
    """The square root of the variance, as in `var`; its gradient is 0 where it is 0."""
    return _spread_of("std", x, axis, ddof, keepdims, flat_root)


def _spread_of(op: str, x: Any, axis: Axes, ddof: Any, keepdims: Any, finish: Any) -> Value:
    v = floats(op, x)
    over, keep, less = axes_of(op, v, axis), options.flag(op, "keepdims", keepdims), options.integer(op, "ddof", ddof)

    def spread(w: Value) -> Value:
        centred = w - mean(w, over, keepdims=True)
        count = count_of(w, over, w.dtype)
        count = e.maximum(count - float(less), 0.0) if less else count
        return finish(sum(centred * centred, over, keepdims=keep) / count)  # type: ignore[no-any-return]

    return widened(v, spread)


def logsumexp(x: Any, axis: Axes = None, keepdims: bool = False) -> Value:
    """log(sum(exp(x))) over `axis` (all without it), from distances to the largest, which do not overflow."""
    v = floats("logsumexp", x)
    over, keep = axes_of("logsumexp", v, axis), options.flag("logsumexp", "keepdims", keepdims)

    def logarithm(w: Value) -> Value:
        top = max(w, over, keepdims=True)
        top = e.select(e.is_finite(top), top, constant(0, w.dtype))
        total = sum(e.exp(w - top), over, keepdims=keep)
        none = e.equal(total, 0.0)  # all are -inf: so is the result, with gradient 0
        low = constant(-math.inf, w.dtype)
        y = e.log(e.select(none, constant(1, w.dtype), total)) + (top if keep else reshape(top, total.shape))
        return e.select(none, low, y)

    return widened(v, logarithm)


def norm(x: Any, ord: float = 2, axis: Axes = None, keepdims: bool = False) -> Value:
    """The norm of vectors over `axis` (all without it): sum(|x|^ord)^(1/ord), inf and -inf the largest and least |x|.

    ord 0 counts what is not 0. Integers are taken where ord is 0, 1, inf or -inf. The gradient is 0 where the norm is.
    """
    v = numbers("norm", x)
    over, keep = axes_of("norm", v, axis), options.flag("norm", "keepdims", keepdims)
    if isinstance(ord, bool) or not isinstance(ord, (int, float)) or math.isnan(ord):
        raise options.refuse("norm", "ord", ord, "a number")
    if ord not in (0, 1, math.inf, -math.inf):
        floats("norm", v)
    return widened(v, lambda w: _norm(w, float(ord), over, keep))


def _norm(w: Value, ord: float, over: tuple[int, ...], keep: bool) -> Value:
    if ord == 0:
        return sum(e.convert(e.not_equal(w, 0), w.dtype), over, keepdims=keep)
    size = e.abs(w) if w.dtype.is_signed else w
    if math.isinf(ord):
        return (max if ord > 0 else min)(size, over, keepdims=keep)
    if ord == 1:
        return sum(size, over, keepdims=keep)
    if ord == 2:
        return flat_root(sum(w * w, over, keepdims=keep))
    none = e.equal(w, 0.0)
    powers = e.power(e.select(none, constant(1, w.dtype), size), ord)
    powers = e.select(none, constant(0 if ord > 0 else math.inf, w.dtype), powers)
    total = sum(powers, over, keepdims=keep)
    zero = e.equal(total, 0.0)
    root = e.power(e.select(zero, constant(1, w.dtype), total), 1 / ord)
    return e.select(zero, constant(0 if ord > 0 else math.inf, w.dtype), root)


def argmin(x: Any, axis: int = -1) -> Value:
    """Place of the least along `axis`, i32; the first of equal ones; NaN counts as least."""
    (v,) = as_values("argmin", x)
    return argmax(e.negate(v) if v.dtype.is_float else e.logical_not(v), axis)  # ~x turns every order of integers round


def lp_normalization(x: Any, p: int = 2, axis: int = -1) -> Value:
    """x divided by its norm along `axis`, the sum of sizes (p = 1) or the root of that of squares (2); zeros stay."""
    v = floats("lp_normalization", x)
    if options.integer("lp_normalization", "p", p) not in (1, 2):
        raise options.refuse("lp_normalization", "p", p, "1 or 2")
    length = norm(v, p, axis_of("lp_normalization", v, axis), keepdims=True)
    one = constant(1, v.dtype)
    return e.divide(v, e.select(e.equal(length, 0), one, length))


def any(x: Any, axis: Axes = None, keepdims: bool = False) -> Value:
    """Whether one element over `axis` (all without it) is true, or a number that is not 0, as i1; false of none."""
    return e.greater(max(_truth("any", x), axis, keepdims), 0)


def all(x: Any, axis: Axes = None, keepdims: bool = False) -> Value:
    """Whether all elements over `axis` (all without it) are true, or numbers that are not 0, as i1; true of none."""
    return e.greater(min(_truth("all", x), axis, keepdims), 0)


def _truth(op: str, x: Any) -> Value:
    """1 or 0, as i32: integers are what every device reduces."""
    (v,) = as_values(op, x)
    return e.convert(v if v.dtype is DType.i1 else e.not_equal(v, constant(0, v.dtype)), DType.i32)

"""Random numbers of a key: Threefry's bits made floats, the same ones on every target.

The bits and `random_uniform` between 0 and 1, `random_bernoulli` and `random_permutation` are equal on all targets to
the bit; others pass through log, sqrt and cos, whose last bits differ. None has a gradient with respect to the key.

    uniform     k / 2^p, k the upper bits: p = 24 of f32, 11 of f16, 8 of bf16, 53 of f64 (two words)
    normal      sqrt(-2 log u) cos(2 pi w)    Box & Muller, "A note on the generation of random normal deviates", 1958
    gumbel      -log(-log(1 - v)), v = (2 k + 1) / 2^p: neither 0 nor 1, so neither infinite nor NaN
    categorical the largest of logits + gumbel
    permutation the order of random bits
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lstm_ir.ir import dims, options
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.location import here
from lstm_ir.ir.types import DimLike, DType, DTypeLike, Shape, TensorType
from lstm_ir.ops.nn import threefry
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import as_values, broadcast_to, shape_for
from lstm_ir.ops.primitive.fill import full
from lstm_ir.ops.primitive.gather import take
from lstm_ir.ops.primitive.precision import floats
from lstm_ir.ops.primitive.reduce import argmax
from lstm_ir.ops.primitive.shape import axis_of
from lstm_ir.ops.scan.order import argsort

DIGITS = {DType.f16: 11, DType.bf16: 8, DType.f32: 24, DType.f64: 53}


def _key(op: str, key: Any) -> Value:
    k = key if isinstance(key, Value) else constant(key)
    if k.rank == 0 and (k.dtype.is_int or k.dtype.is_float):
        seed = key if isinstance(key, int) else "seed"
        raise IRError(message(op, f"the key is {k.type}, one number; li.random_key({seed}) makes a key", (), here()))
    if k.type != TensorType((2,), DType.u32):
        raise IRError(message(op, f"the key is {k.type}, expected u32[2]", (), here()))
    return k


def _float(op: str, dtype: DTypeLike) -> DType:
    kind = DType.of(dtype)
    if not kind.is_float:
        raise options.refuse(op, "dtype", dtype, "a type of floats")
    return kind


def _whole(key: Value, shape: Shape, bits: int, kind: DType) -> Value:
    """Whole numbers 0 ... 2^bits - 1 as floats, exact."""
    if bits <= 32:
        return e.convert(e.shift_right_logical(threefry.random_bits(key, shape), 32 - bits), kind)
    both = threefry.random_bits(key, (2, *shape))
    high, low = (e.convert(take(both, k), DType.i64) for k in (0, 1))
    upper = e.shift_right_logical(high, 32 - (bits - 27))
    return e.convert(e.shift_left(upper, 27) | e.shift_right_logical(low, 5), kind)


def _unit(key: Value, shape: Shape, kind: DType) -> Value:
    """[0, 1), in the type that `kind` is computed in."""
    return _whole(key, shape, DIGITS[kind], kind.compute_dtype) * 2.0 ** -DIGITS[kind]


def random_uniform(
    key: Any, shape: Sequence[DimLike], low: float = 0.0, high: float = 1.0, dtype: DTypeLike = "f32"
) -> Value:
    """Floats in [low, high), all alike likely, from a key u32[2] of `random_key`."""
    k, kind = _key("random_uniform", key), _float("random_uniform", dtype)
    a, b = options.real("random_uniform", "low", low), options.real("random_uniform", "high", high)
    if not a < b:
        raise options.refuse("random_uniform", "high", high, f"a number above low, {a}")
    u = _unit(k, shape_for("random_uniform", shape), kind)
    if (a, b) == (0.0, 1.0):
        return e.convert(u, kind)
    y = e.convert(u * (b - a) + a, kind)
    return e.clamp(constant(a, kind), y, constant(_below(b, kind), kind))


def _below(number: float, kind: DType) -> float:
    """The next number of the type below one."""
    digits = {DType.bf16: 8, DType.f16: 11, DType.f32: 24, DType.f64: 53}[kind]
    least = {DType.bf16: -133, DType.f16: -24, DType.f32: -149, DType.f64: -1074}[kind]
    _, exponent = math.frexp(number)
    near = 2.0 ** (max(exponent - digits, least))  # the distance of numbers of this size
    held = math.floor(number / near) * near
    if held < number:
        return held
    mantissa, _ = math.frexp(number)
    return number - (near / 2 if mantissa == 0.5 and exponent - digits > least else near)


def random_normal(
    key: Any, shape: Sequence[DimLike], mean: float = 0.0, std: float = 1.0, dtype: DTypeLike = "f32"
) -> Value:
    """Floats of the normal distribution with this mean and standard deviation, from a key u32[2]."""
    k, kind = _key("random_normal", key), _float("random_normal", dtype)
    m, s = options.real("random_normal", "mean", mean), options.real("random_normal", "std", std)
    sizes, wide = shape_for("random_normal", shape), kind.compute_dtype
    both = _unit(k, (2, *sizes), wide)
    radius = e.sqrt(e.maximum(e.log(1.0 - take(both, 0)) * -2.0, 0.0))  # log(1) may be a rounding above 0
    y = radius * e.cos((take(both, 1) - 0.5) * (2 * math.pi))
    return e.convert(y * s + m, kind)


def random_gumbel(key: Any, shape: Sequence[DimLike], dtype: DTypeLike = "f32") -> Value:
    """Floats of the standard Gumbel distribution, all finite, from a key u32[2]."""
    k, kind = _key("random_gumbel", key), _float("random_gumbel", dtype)
    return e.convert(_gumbel(k, shape_for("random_gumbel", shape), kind.compute_dtype), kind)


def _gumbel(key: Value, shape: Shape, wide: DType) -> Value:
    digits = DIGITS[wide]
    v = _whole(key, shape, digits - 1, wide) * 2.0 ** (1 - digits) + 2.0**-digits
    return -e.log(-e.log1p(-v))


def random_bernoulli(key: Any, shape: Sequence[DimLike], p: Any = 0.5) -> Value:
    """Booleans that are true with probability p, from a key u32[2]; p is a number, or floats that broadcast."""
    k, sizes = _key("random_bernoulli", key), shape_for("random_bernoulli", shape)
    if isinstance(p, Value) or hasattr(p, "shape") or isinstance(p, (list, tuple)):
        chance = floats("random_bernoulli", p, "p")
        wide = chance.dtype.compute_dtype
        return e.less(_unit(k, sizes, wide), e.convert(broadcast_to(chance, sizes), wide))
    share = options.real("random_bernoulli", "p", p)
    if not 0 <= share <= 1:
        raise options.refuse("random_bernoulli", "p", p, "a number from 0 to 1")
    return e.logical_not(threefry.drawn(threefry.random_bits(k, sizes), share))


def random_categorical(key: Any, logits: Any, axis: int = -1) -> Value:
    """Places along `axis`, i32, drawn with probability softmax(logits); from a key u32[2].

    A logit of -inf is never drawn, unless all of them are, which gives 0.
    """
    k, v = _key("random_categorical", key), floats("random_categorical", logits, "logits")
    at = axis_of("random_categorical", v, axis)
    wide = v.dtype.compute_dtype
    return argmax(e.convert(v, wide) + _gumbel(k, v.shape, wide), at)


def random_permutation(key: Any, x: Any, axis: int = 0) -> Value:
    """0 ... x - 1 in random order, i32[x], where x is a size; else the value x in random order along `axis`.

    From a key u32[2]. All orders are alike likely, up to equal bits: two of n are equal with probability n^2 / 2^33.
    """
    k = _key("random_permutation", key)
    if options.is_int(x) or isinstance(x, (str, dims.Expr)):
        (n,) = shape_for("random_permutation", (x,))
        return argsort(threefry.random_bits(k, (n,)))
    (v,) = as_values("random_permutation", x)
    at = axis_of("random_permutation", v, axis)
    order = argsort(threefry.random_bits(k, (v.shape[at],)))
    return _picked(v, order, at)


def _picked(x: Value, order: Value, axis: int) -> Value:
    n = x.shape[axis]
    return full(x.shape, 0, x.dtype) if n == 0 else take(x, order, axis)

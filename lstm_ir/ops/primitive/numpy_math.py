"""NumPy meanings of elementwise ops that NumPy lacks, or leaves to the processor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, overload

import numpy as np

from lstm_ir.ir.types import DType

Array = np.ndarray[Any, Any]


@overload
def wide(a: Array) -> Array: ...


@overload
def wide(a: None) -> None: ...


def wide(a: Array | None) -> Array | None:
    """16-bit floats as float32, others as they are."""
    return a if a is None or a.dtype.itemsize != 2 else a.astype(np.float32)


def widened(meaning: Callable[..., Any]) -> Callable[..., Any]:
    """Half and bfloat16 computed in float32 and rounded once."""

    def run(*arrays: Array) -> Any:
        kind = arrays[0].dtype
        if kind.itemsize == 2 and kind.kind in "fV":
            return np.asarray(meaning(*(a.astype(np.float32) for a in arrays))).astype(kind)
        return meaning(*arrays)

    return run


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


def sign(x: Array) -> Array:
    """-1, 0 or 1; -0.0 of -0.0, which NumPy makes 0.0, and NaN of NaN."""
    return np.asarray(np.copysign(np.sign(x), x) if x.dtype.kind == "f" else np.sign(x))


def rsqrt(x: Array) -> Array:
    """1 / sqrt(x)."""
    return (1 / np.sqrt(x)).astype(x.dtype)


def erf(x: Array) -> Array:
    """Gauss' error function, by the C library."""
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x), x.dtype)


def divide(a: Array, b: Array) -> Array:
    """a / b; integers truncate, x / 0 has all bits set, MIN / -1 = MIN."""
    if a.dtype.kind == "f":
        return np.asarray(np.divide(a, b))
    safe = np.where(b == 0, 1, b).astype(a.dtype)
    if a.dtype.kind == "u":
        return np.where(b == 0, np.iinfo(a.dtype).max, a // safe).astype(a.dtype)
    quotient = np.where(safe == -1, np.negative(a), (a - np.fmod(a, _not_minus_one(safe))) // _not_minus_one(safe))
    return np.where(b == 0, -1, quotient).astype(a.dtype)


def remainder(a: Array, b: Array) -> Array:
    """The sign of a; integers: x % 0 = x."""
    if a.dtype.kind == "f":
        return np.asarray(np.fmod(a, b))
    safe = _not_minus_one(np.where(b == 0, 1, b).astype(a.dtype))
    return np.where(b == 0, a, np.fmod(a, safe)).astype(a.dtype)


def _not_minus_one(b: Array) -> Array:
    """1 in place of -1, whose quotient by MIN overflows and whose remainders are 0 as those of
    1.
    """
    return np.where(b == -1, 1, b).astype(b.dtype) if b.dtype.kind == "i" else b


def shift_left(a: Array, b: Array) -> Array:
    """a << b; 0 where b is outside 0..width-1."""
    ok, n = _shift(a, b)
    return np.where(ok, np.left_shift(a, n), 0).astype(a.dtype)


def shift_right_logical(a: Array, b: Array) -> Array:
    """Zeros moved in; 0 where b is outside 0..width-1."""
    ok, n = _shift(a, b)
    unsigned = a.view(f"u{a.dtype.itemsize}")
    return np.where(ok, np.right_shift(unsigned, n.astype(unsigned.dtype)).view(a.dtype), 0).astype(a.dtype)


def shift_right_arithmetic(a: Array, b: Array) -> Array:
    """The sign moved in; all sign where b is outside 0..width-1."""
    ok, n = _shift(a, b)
    last = np.asarray(a.dtype.itemsize * 8 - 1, a.dtype)
    signed = a.view(f"i{a.dtype.itemsize}")
    by = np.where(ok, n, last).astype(signed.dtype)
    return np.asarray(np.right_shift(signed, by)).view(a.dtype)


def _shift(a: Array, b: Array) -> tuple[Array, Array]:
    ok = (b >= 0) & (b < a.dtype.itemsize * 8)
    return ok, np.where(ok, b, 0).astype(a.dtype)


def convert(x: Array, *, dtype: DType) -> Array:
    """Float to integer truncates and saturates, NaN gives 0; to i1 is x != 0; integers wrap."""
    target = dtype.numpy
    if dtype is DType.i1:
        return np.asarray(x != 0)
    if x.dtype.kind in "fV" and not dtype.is_float:
        info = np.iinfo(target)
        wide = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
        inside = (wide >= float(info.min)) & (wide < float(info.max) + (info.bits < 64))
        low_high = np.where(wide < 0, info.min, info.max).astype(target)
        return np.where(inside, np.where(inside, wide, 0).astype(target), low_high)
    return x.astype(target)

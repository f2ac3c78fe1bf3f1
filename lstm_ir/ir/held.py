"""Numbers brought into a dtype that holds them: rounded where they are floats, never wrapped, cut off
or made infinite."""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir.errors import IRError
from lstm_ir.ir.types import DType


def converted(value: Any, dtype: DType) -> np.ndarray[Any, Any]:
    """A copy of `value` in `dtype`; IRError that names the first number which does not fit."""
    try:
        given = np.asarray(value)
        if given.dtype.kind not in "biufVO":  # complex numbers, texts, times; V is bf16, and what NumPy refuses
            raise TypeError(f"its elements are {given.dtype.name}")
        if given.dtype == dtype.numpy:
            return np.array(given, order="C", copy=True)
        with np.errstate(over="ignore", invalid="ignore"):
            array = np.array(value, dtype=dtype.numpy, order="C", copy=True)
    except OverflowError:
        raise IRError(f"the number {_shown(value)} does not fit {dtype}") from None
    except (TypeError, ValueError) as e:
        raise IRError(f"a {type(value).__name__} is not an array of {dtype}: {e}") from None
    if given.dtype.hasobject:  # integers beyond 64 bits, or what is no number at all
        _finite(value, array, dtype)
        return array
    if array.shape == given.shape and given.size:
        wrong = _lost(given, array, dtype)
        if wrong.any():
            raise IRError(f"the number {given[wrong].flat[0]} does not fit {dtype}")
    return array


def _lost(source: np.ndarray[Any, Any], array: np.ndarray[Any, Any], dtype: DType) -> Any:
    """Where a number became another one."""
    if dtype.is_float:
        finite = np.isfinite(source) if source.dtype.kind not in "biu" else np.True_
        return ~np.isfinite(array) & finite
    if dtype is DType.i1:
        return (source != 0) & (source != 1)
    if source.dtype.kind in "biu":
        limits = np.iinfo(dtype.numpy)
        low, high = int(source.min()), int(source.max())
        if limits.min <= low and high <= limits.max:
            return np.False_
        return (source < limits.min) if low < limits.min else (source > limits.max)
    wide = source.astype(np.float64)
    end = 2.0 ** (dtype.bits - (0 if dtype.value.startswith("u") else 1))
    start = 0.0 if dtype.value.startswith("u") else -end
    return ~((wide >= start) & (wide < end) & (wide == np.trunc(wide)))


def _finite(value: Any, array: np.ndarray[Any, Any], dtype: DType) -> None:
    if dtype.is_float and isinstance(value, int) and not np.isfinite(array).all():
        raise IRError(f"the number {_shown(value)} does not fit {dtype}")


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}..."

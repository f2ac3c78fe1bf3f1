"""Array-likes made into the native contiguous arrays that the runtime takes, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir.device_array import DeviceArray
from lstm_ir.ir.errors import CallError
from lstm_ir.ir.foreign_arrays import as_numpy
from lstm_ir.ir.types import DType


class Conform:
    """What one input must be: its name, and NumPy's dtype, looked up once."""

    __slots__ = ("as_is", "dtype", "kind", "name")

    def __init__(self, name: str, kind: DType) -> None:
        self.name, self.kind, self.dtype = name, kind, kind.numpy
        self.as_is = None if kind is DType.i1 else self.dtype  # of an array that needs no second look

    def refuse(self, got: str) -> CallError:
        """The error for a value that is not of this dtype."""
        return CallError(f"{self.name}: expected {self.kind} ({self.dtype}), got {got}")


def take(want: Conform, value: Any) -> np.ndarray[Any, Any]:
    """`value` as a native, C-contiguous array of exactly the wanted dtype."""
    if isinstance(value, np.ma.MaskedArray):
        raise want.refuse("a masked array, whose mask would be lost")
    untyped = isinstance(value, (bool, int, float, list, tuple))
    value = as_numpy(value, want.refuse)
    try:
        a = np.asarray(value)
    except (ValueError, TypeError, OverflowError, RuntimeError) as e:
        raise want.refuse(f"a {type(value).__name__} that is not an array: {e}") from e
    if a.dtype.hasobject:
        raise want.refuse(f"Python objects ({type(value).__name__})")
    if a.dtype.newbyteorder("=") != want.dtype:
        if not untyped:
            raise want.refuse(str(a.dtype))
        a = _convert(want, a)
    a = np.require(a, dtype=want.dtype, requirements="C")
    return _of_ones(a) if want.kind is DType.i1 else a


def _of_ones(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Booleans whose bytes are 0 and 1: a view of other bytes is true where NumPy sees any bit, a module one alone."""
    raw = a.view(np.uint8)
    return raw != 0 if a.size and raw.max() > 1 else a


def kept(want: Conform, value: Any) -> Any:
    """As `take`, but what lies on a device stays there."""
    if isinstance(value, DeviceArray) and not value.on_host and value.dtype == want.dtype:
        return value
    return take(want, value)


def _convert(want: Conform, a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Python numbers in the wanted dtype, where no value is lost."""
    kind = a.dtype.kind
    if a.size == 0:
        return a.astype(want.dtype)
    if kind == "b" or want.kind is DType.i1 or kind not in "iuf":
        raise want.refuse(f"Python values of {a.dtype}")
    if want.kind.is_int:
        if kind == "f":
            raise want.refuse(f"Python floats (the first is {a.flat[0]})")
        limits = np.iinfo(want.dtype)
        low, high = int(a.min()), int(a.max())
        if low < limits.min or high > limits.max:
            raise want.refuse(f"the value {low if low < limits.min else high}, which overflows it")
        return a.astype(want.dtype)
    with np.errstate(over="ignore"):
        out = a.astype(want.dtype)
    back = out.astype(np.float64)
    if bool((np.isinf(back) & np.isfinite(a)).any()):
        raise want.refuse("a value that overflows it")
    if kind in "iu" and bool((back != a).any()):
        raise want.refuse("an integer that it cannot hold exactly")
    return out

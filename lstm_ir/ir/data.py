"""Arrays inside graphs: read-only, known by their hash."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from lstm_ir.ir.errors import IRError
from lstm_ir.ir.foreign_arrays import as_numpy
from lstm_ir.ir.held import converted
from lstm_ir.ir.types import DType, TensorType


class Data:
    """A read-only array inside a graph, known by its hash.

    `array` is None where only the hash was read.
    """

    __slots__ = ("_array", "_hash", "_splat", "type")

    def __init__(self, array: np.ndarray[Any, Any] | None, type: TensorType, sha256: str | None = None) -> None:
        self.type, self._array, self._hash = type, array, sha256
        self._splat: Any = ...  # not looked for yet

    @classmethod
    def of(cls, value: Any, dtype: DType | None = None) -> Data:
        """A copy of `value` that nobody can write to; IRError for a number that `dtype` cannot
        hold (a float may be rounded, not become infinite), and for what is no array.
        """
        if isinstance(value, np.ma.MaskedArray):
            raise _refused("a masked array, whose mask would be lost")
        value = as_numpy(value, _refused)
        array = _copied(value) if dtype is None else converted(value, dtype)
        if array.dtype.hasobject:
            raise _refused(f"a {type(value).__name__} of Python objects, which are no numbers")
        kind = TensorType(array.shape, DType.of(array.dtype))
        array = array.astype(kind.dtype.numpy, copy=False)
        array.setflags(write=False)
        return cls(array, kind)

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The elements; refused where only the hash is known."""
        if self._array is None:
            raise IRError(
                f"the array with sha256 {self._hash} was not given: li.parse(text, data={{...}}) takes it, the command "
                "line by --weights FILE.npz"
            )
        return self._array

    @property
    def known(self) -> bool:
        """Whether the elements are here."""
        return self._array is not None

    @property
    def splat(self) -> Any:
        """The NumPy number that all elements are, bit for bit; None where there is no such number,
        and where only the hash is known."""
        if self._splat is ...:
            flat = None if self._array is None else self._array.reshape(-1)
            if flat is None or not flat.size:
                self._splat = None
            else:
                bits = flat.view(f"V{flat.itemsize}")  # NaN is NaN here, and -0.0 is not 0.0
                self._splat = flat[0] if (bits == bits[0]).all() else None
        return self._splat

    @property
    def sha256(self) -> str:
        """Hash of type and bytes."""
        if self._hash is None:
            digest = hashlib.sha256(str(self.type).encode())
            digest.update(self.array.tobytes())
            self._hash = digest.hexdigest()
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Data) and (self is other or self.sha256 == other.sha256)

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __repr__(self) -> str:
        return f"Data({self.type}, {self.sha256[:8]})"


def _refused(got: str) -> IRError:
    return IRError(f"expected an array, got {got}")


def _copied(value: Any) -> np.ndarray[Any, Any]:
    try:
        return np.array(value, order="C", copy=True)
    except (TypeError, ValueError, OverflowError, RuntimeError) as e:
        raise _refused(f"a {type(value).__name__} that is none: {e}") from e

"""Element types and tensor types: `f32[T,B,64]`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, TypeAlias

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.dims import LIMIT, Dim
from lstm_ir.ir.errors import DimError, IRError
from lstm_ir.ir.immutable import Immutable


class DType(Enum):
    """Element type; the value is its name in text. `i1` is a boolean."""

    f16 = "f16"
    bf16 = "bf16"
    f32 = "f32"
    f64 = "f64"
    i8 = "i8"
    u8 = "u8"
    i32 = "i32"
    u32 = "u32"
    i64 = "i64"
    i1 = "i1"

    def __str__(self) -> str:
        return self.value

    __repr__ = __str__

    @property
    def is_float(self) -> bool:
        """One of f16, bf16, f32, f64."""
        return self.value[0] in "fb"

    @property
    def is_int(self) -> bool:
        """An integer of more than one bit."""
        return not self.is_float and self is not DType.i1

    @property
    def is_signed(self) -> bool:
        """A float or a signed integer."""
        return self.is_float or self.value in ("i8", "i32", "i64")

    @property
    def bits(self) -> int:
        """Width in bits; 1 for i1."""
        return int(self.value.lstrip("bfiu"))

    @property
    def bytes(self) -> int:
        """Width in memory."""
        return max(1, self.bits // 8)

    @property
    def compute_dtype(self) -> DType:
        """What its elements are computed in, with one rounding at the end: f32 for 16-bit floats, else itself."""
        return DType.f32 if self.bits == 16 else self

    @property
    def numpy(self) -> np.dtype[Any]:
        """NumPy's dtype; bf16 is that of ml_dtypes."""
        if self is DType.bf16:
            try:
                import ml_dtypes
            except ImportError as e:
                raise IRError("bf16: NumPy has no bfloat16 of its own; install ml-dtypes") from e
            half: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return half
        return np.dtype(_NUMPY[self.value])

    @classmethod
    def of(cls, value: DTypeLike) -> DType:
        """The DType of a name (`f32`, `float32`), a NumPy dtype or a DType."""
        if isinstance(value, DType):
            return value
        try:
            text = value if isinstance(value, str) else np.dtype(value).name
        except (TypeError, ValueError) as e:
            raise IRError(f"{value!r:.80} is no element type: {e}") from None
        found = _BY_NAME.get(text)
        if text == "float":
            raise IRError("element type 'float' is f64 to NumPy and f32 to PyTorch; write 'f64' or 'f32'")
        if found is None:
            raise IRError(f"element type {text!r} is not one of {', '.join(d.value for d in cls)}")
        return found


DTypeLike: TypeAlias = "DType | str | type | np.dtype[Any]"
_NUMPY = {
    "f16": "float16", "f32": "float32", "f64": "float64", "i8": "int8", "u8": "uint8",
    "i32": "int32", "u32": "uint32", "i64": "int64", "i1": "bool",
}  # fmt: skip
_BY_NAME = {d.value: d for d in DType} | {n: DType(k) for k, n in _NUMPY.items()}
_BY_NAME |= {"bfloat16": DType.bf16, "half": DType.f16, "double": DType.f64}

DimLike: TypeAlias = "int | str | Dim"
Shape: TypeAlias = "tuple[Dim, ...]"


def shape_of(sizes: Iterable[DimLike]) -> Shape:
    """A checked shape; a string is a dimension expression."""
    out: list[Dim] = []
    if isinstance(sizes, bytes) or not hasattr(sizes, "__iter__") or getattr(sizes, "ndim", 1) != 1:
        raise DimError(f"a shape is {sizes!r:.80}; expected a list of sizes")
    for s in sizes:
        d = dims.parse(s) if isinstance(s, str) else s
        if isinstance(d, (int, np.integer)) and not isinstance(d, bool):
            d = int(d)
            if not 0 <= d < LIMIT:
                raise DimError(f"a size is {d}; sizes are 0 to 2^62 - 1")
        elif not isinstance(d, dims.Expr):
            raise DimError(f"a size is {d!r:.80}; expected an int, a name or a dimension expression")
        out.append(d)
    return tuple(out)


class TensorType(Immutable):
    """Shape and element type; rank 0 is a scalar. Text is read: `TensorType(("T", "2*B"), "f32")`."""

    __slots__ = ("dtype", "shape")
    shape: Shape
    dtype: DType

    def __init__(self, shape: Shape, dtype: DType) -> None:
        if type(dtype) is not DType:
            dtype = DType.of(dtype)
        if type(shape) is not tuple or any(isinstance(d, str) for d in shape):
            shape = shape_of(shape)
        self._set(shape=shape, dtype=dtype)
        total = 1
        for d in self.shape:
            total *= d if isinstance(d, int) and d else 1
        if total >= LIMIT:
            raise DimError(f"{self} has more than 2^62 elements")

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    __repr__ = __str__

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """No named dimension."""
        return all(isinstance(d, int) for d in self.shape)

    @property
    def names(self) -> set[str]:
        """Dimension names in the shape."""
        return set().union(*(dims.names(d) for d in self.shape)) if self.shape else set()

    def resized(self, axis: int, size: Dim) -> TensorType:
        """The same type with another size on `axis`."""
        return TensorType((*self.shape[:axis], size, *self.shape[axis + 1 :]), self.dtype)

    def with_shape(self, shape: Iterable[Dim]) -> TensorType:
        """The same dtype with another shape."""
        return TensorType(tuple(shape), self.dtype)

    def with_dtype(self, dtype: DType) -> TensorType:
        """The same shape with another dtype."""
        return TensorType(self.shape, dtype)

    def bind(self, env: Mapping[str, Dim]) -> TensorType:
        """Dimension names replaced by sizes or expressions."""
        return TensorType(tuple(dims.substitute(d, env) for d in self.shape), self.dtype)


def parse_type(text: str) -> TensorType:
    """The type written as `f32[T,B,64]`."""
    dtype, _, rest = text.strip().partition("[")
    letters = dtype.rstrip("0123456789")
    if letters == dtype or not (letters.isascii() and letters.isalpha() and letters.islower()) or rest[-1:] != "]":
        raise IRError(f"not a tensor type: {text[:60]!r}")
    inside = rest[:-1].strip()
    return TensorType(shape_of(inside.split(",") if inside else ()), DType.of(dtype))

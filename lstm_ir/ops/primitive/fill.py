"""Tensors made of nothing: `iota`, and constants repeated to a shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lstm_ir.ir.dims import Expr
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value, make
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.location import here
from lstm_ir.ir.opdef import Attr, define, need, need_at_least
from lstm_ir.ir.types import DimLike, DType, DTypeLike, Shape, TensorType
from lstm_ir.ops.primitive.broadcast import broadcast_to


def _iota_types(*, shape: Shape, dimension: int, dtype: DType) -> TensorType:
    need(0 <= dimension < len(shape), f"dimension {dimension} is outside 0..{len(shape) - 1}")
    need(dtype is not DType.i1, "gives numbers, not i1")
    for d in shape:
        need_at_least(d, 0, f"the size {d} is below 0")
    return TensorType(shape, dtype)


def _iota_numpy(*, shape: tuple[int, ...], dimension: int, dtype: DType) -> Any:
    steps = np.arange(shape[dimension]).astype(dtype.numpy)
    column = [-1 if i == dimension else 1 for i in range(len(shape))]
    return np.broadcast_to(steps.reshape(column), shape)


IOTA = define(
    "iota", "", attrs={"shape": Attr("dims"), "dimension": Attr("int"), "dtype": Attr("dtype")},
    types=_iota_types, numpy=_iota_numpy, vjp=lambda node, cts: (),
)  # fmt: skip


def iota(shape: Sequence[DimLike], dimension: int, dtype: DTypeLike = "i32") -> Value:
    """0, 1, 2, ... along `dimension`, the same everywhere else; integers wrap, floats round."""
    return make(IOTA, shape=shape, dimension=dimension, dtype=dtype).values[0]


def arange(size: DimLike, dtype: DTypeLike = "i32") -> Value:
    """0 ... size - 1."""
    return iota((size,), 0, dtype)


def full(shape: Sequence[DimLike], value: Any, dtype: DTypeLike | None = None) -> Value:
    """`value`, a number, repeated to `shape`."""
    if isinstance(value, (Value, Expr)):
        what, x = ("a value of the graph", "x") if isinstance(value, Value) else ("a size", f"li.size({str(value)!r})")
        raise IRError(message("full", f"value is {what}, not a number; write li.broadcast_to({x}, shape)", (), here()))
    return broadcast_to(constant(value, dtype), shape)


def zeros(shape: Sequence[DimLike], dtype: DTypeLike = "f32") -> Value:
    """Zeros (false for i1)."""
    return full(shape, 0, dtype)


def ones(shape: Sequence[DimLike], dtype: DTypeLike = "f32") -> Value:
    """Ones (true for i1)."""
    return full(shape, 1, dtype)


def zeros_like(x: Value) -> Value:
    """Zeros of x's type."""
    return zeros(x.shape, x.dtype)

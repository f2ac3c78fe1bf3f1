"""Reductions over axes: sum, maximum, minimum, mean, and the running sum and argmax along one.

Two-byte floats are summed in float32. Of no elements the sum is 0, the maximum -inf (or the least
integer), the minimum inf (or the largest), the mean NaN. On i1, maximum is any and minimum is all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lstm_ir.ir import options
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.opdef import Attr, Level, Op, define, need, need_at_least
from lstm_ir.ir.pullback import Cts, only
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive.broadcast import as_values, broadcast_in_dim
from lstm_ir.ops.primitive.elementwise import convert, equal, maximum, select
from lstm_ir.ops.primitive.numpy_math import wide
from lstm_ir.ops.primitive.shape import axes_of, axis_of, need_axes, reshape
from lstm_ir.ops.primitive.size import size

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]
Axes = int | Sequence[int] | None


def _reduced(operand: TensorType, dimensions: Ints) -> TensorType:
    need_axes(operand, dimensions)
    return operand.with_shape(d for i, d in enumerate(operand.shape) if i not in dimensions)


def _sum_types(operand: TensorType, *, dimensions: Ints) -> TensorType:
    need(operand.dtype is not DType.i1, 'takes numbers, got i1; li.convert(x, "i32") converts')
    return _reduced(operand, dimensions)


def _mean_types(operand: TensorType, *, dimensions: Ints) -> TensorType:
    need(operand.dtype.is_float, f'takes float elements, got {operand.dtype}; li.convert(x, "f32") converts')
    return _reduced(operand, dimensions)


def _sum(x: Array, *, dimensions: Ints) -> Array:
    return np.asarray(np.sum(wide(x), axis=dimensions, dtype=wide(x).dtype)).astype(x.dtype)


def _mean(x: Array, *, dimensions: Ints) -> Array:
    return np.asarray(np.divide(np.sum(wide(x), axis=dimensions), _count(x, dimensions))).astype(x.dtype)


def _count(x: Array, dimensions: Ints) -> np.float64 | np.float32:
    n = int(np.prod([x.shape[d] for d in dimensions], dtype=np.int64))
    return np.float64(n) if x.dtype == np.float64 else np.float32(n)


def bounds(dtype: DType) -> tuple[float | int | bool, float | int | bool]:
    """The least and the largest value."""
    if dtype.is_float:
        return -np.inf, np.inf
    if dtype is DType.i1:
        return False, True
    info = np.iinfo(dtype.numpy)
    return int(info.min), int(info.max)


def _max(x: Array, *, dimensions: Ints) -> Array:
    least, _ = bounds(DType.of(x.dtype))
    return np.asarray(np.max(wide(x), axis=dimensions, initial=least)).astype(x.dtype)


def _min(x: Array, *, dimensions: Ints) -> Array:
    _, largest = bounds(DType.of(x.dtype))
    return np.asarray(np.min(wide(x), axis=dimensions, initial=largest)).astype(x.dtype)


def _spread(reduced: Value, x: Value, dimensions: tuple[int, ...]) -> Value:
    """What a reduction of x gave, repeated along the axes that it removed."""
    kept = tuple(i for i in range(x.rank) if i not in dimensions)
    return broadcast_in_dim(reduced, x.shape, kept) if dimensions else reduced


def _sum_vjp(node: Node, cts: Cts) -> Cts:
    """To every element alike."""
    return (_spread(only(cts), node.inputs[0], node.attrs["dimensions"]),)


def _extreme_vjp(node: Node, cts: Cts) -> Cts:
    """To the elements equal to the maximum (minimum), divided by how many there are."""
    ct, (x,), over = only(cts), node.inputs, node.attrs["dimensions"]
    chosen = equal(x, _spread(node.values[0], x, over))
    wide = x.dtype.compute_dtype
    shares = maximum(sum(convert(chosen, wide), over), 1.0)  # none is chosen of NaN
    share = convert(convert(ct, wide) / shares, x.dtype)
    return (select(chosen, _spread(share, x, over), 0.0),)


def _mean_vjp(node: Node, cts: Cts) -> Cts:
    """To every element alike, divided by how many there are."""
    (x,), over = node.inputs, node.attrs["dimensions"]
    wide = x.dtype.compute_dtype
    count = maximum(count_of(x, over, wide), 1.0)  # 0: there is no element to give it to
    share = convert(only(cts), wide) / count
    return (_spread(convert(share, x.dtype), x, over),)


def _cumsum_vjp(node: Node, cts: Cts) -> Cts:
    """The running sum from the other end."""
    a = node.attrs
    back = cumsum(only(cts), a["axis"], not a["reverse"], a["exclusive"])
    return (back,)


def _argmax_vjp(node: Node, cts: Cts) -> Cts:
    """None."""
    return (None,)


def _define(name: str, types: Callable[..., Any], numpy: Callable[..., Any], vjp: Callable[..., Any]) -> Op:
    return define(name, "operand", attrs={"dimensions": Attr("ints")}, types=types, numpy=numpy, vjp=vjp)


REDUCE_SUM = _define("reduce_sum", _sum_types, _sum, _sum_vjp)
REDUCE_MAX = _define("reduce_max", lambda x, *, dimensions: _reduced(x, dimensions), _max, _extreme_vjp)
REDUCE_MIN = _define("reduce_min", lambda x, *, dimensions: _reduced(x, dimensions), _min, _extreme_vjp)


def count_of(x: Value, dimensions: Ints, dtype: DType) -> Value:
    """The number of elements that are reduced to one, as `dtype`[]."""
    out = constant(1, dtype)
    for d in dimensions:
        n = x.shape[d]
        out = out * (constant(n, dtype) if isinstance(n, int) else convert(size(n), dtype))
    return out


def _expand_mean(x: Value, *, dimensions: Ints) -> Value:
    inner = x.dtype.compute_dtype
    total = sum(convert(x, inner), dimensions)
    return convert(total / count_of(x, dimensions, inner), x.dtype)


REDUCE_MEAN = define(
    "reduce_mean", "operand", attrs={"dimensions": Attr("ints")}, types=_mean_types, numpy=_mean,
    vjp=_mean_vjp, expand=_expand_mean, level=Level.composite,
)  # fmt: skip


def _cumsum_types(operand: TensorType, *, axis: int, reverse: bool, exclusive: bool) -> TensorType:
    need(operand.dtype is not DType.i1, 'takes numbers, got i1; li.convert(x, "i32") converts')
    need_axes(operand, (axis,))
    return operand


def _cumsum(x: Array, *, axis: int, reverse: bool, exclusive: bool) -> Array:
    """Sums of the elements so far; `exclusive` leaves the element itself out."""
    v = np.moveaxis(wide(x), axis, 0)
    v = v[::-1] if reverse else v
    if exclusive:
        v = np.concatenate([np.zeros_like(v[:1]), v[:-1]])
    out = np.cumsum(v, axis=0, dtype=v.dtype)
    return np.moveaxis(out[::-1] if reverse else out, 0, axis).astype(x.dtype)


CUMSUM = define(
    "cumsum", "operand",
    attrs={"axis": Attr("int"), "reverse": Attr("bool", False), "exclusive": Attr("bool", False)},
    types=_cumsum_types, numpy=_cumsum, vjp=_cumsum_vjp,
)  # fmt: skip


def _argmax_types(operand: TensorType, *, axis: int) -> TensorType:
    need_axes(operand, (axis,))
    need_at_least(operand.shape[axis], 1, f"axis {axis} has no elements")
    return _reduced(operand, (axis,)).with_dtype(DType.i32)


ARGMAX = define(
    "argmax", "operand", attrs={"axis": Attr("int")}, types=_argmax_types,
    numpy=lambda x, *, axis: np.argmax(wide(x), axis).astype(np.int32), vjp=_argmax_vjp,
)  # fmt: skip


def _reduce(op: Op, x: object, axis: Axes, keepdims: bool) -> Value:
    (v,) = as_values(op.name, x)
    found = axes_of(op.name, v, axis)
    keepdims = options.flag(op.name, "keepdims", keepdims)
    if not found and op is not REDUCE_MEAN:
        return v
    out = make(op, v, dimensions=found).values[0]
    return reshape(out, [1 if i in found else d for i, d in enumerate(v.shape)]) if keepdims else out


def sum(x: object, axis: Axes = None, keepdims: bool = False) -> Value:
    """The sum over `axis` (all without it)."""
    return _reduce(REDUCE_SUM, x, axis, keepdims)


def max(x: object, axis: Axes = None, keepdims: bool = False) -> Value:
    """The largest over `axis`; NaN if any is. Its gradient is shared by equal ones."""
    return _reduce(REDUCE_MAX, x, axis, keepdims)


def min(x: object, axis: Axes = None, keepdims: bool = False) -> Value:
    """The smallest over `axis`; NaN if any is. Its gradient is shared by equal ones."""
    return _reduce(REDUCE_MIN, x, axis, keepdims)


def mean(x: object, axis: Axes = None, keepdims: bool = False) -> Value:
    """The mean over `axis`."""
    return _reduce(REDUCE_MEAN, x, axis, keepdims)


def cumsum(x: object, axis: int = 0, reverse: bool = False, exclusive: bool = False) -> Value:
    """Running sums along `axis`, from its end if `reverse`, the element left out if `exclusive`."""
    (v,) = as_values("cumsum", x)
    at = axis_of("cumsum", v, axis)
    return make(CUMSUM, v, axis=at, reverse=reverse, exclusive=exclusive).values[0]


def argmax(x: object, axis: int = -1) -> Value:
    """Place of the largest along `axis`, i32; the first of equal ones; NaN counts as largest."""
    (v,) = as_values("argmax", x)
    return make(ARGMAX, v, axis=axis_of("argmax", v, axis)).values[0]

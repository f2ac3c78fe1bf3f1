"""Pools as frameworks have them: open edges, means with dilations, places of the largest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import SizeArray
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.core.same_padding import Edge, padded
from lstm_ir.ops.primitive.window import slice_axis

Ints = Sequence[int]
MAX_TAPS = 2**13  # of a pool along one axis
MAX_REACH = 2**20  # places from the first tap to the last


def _each(numbers: Sequence[Any]) -> Any:
    """As a builder of so many axes takes them."""
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def lowest(dtype: DType) -> Any:
    """What is below all other elements, or equal to the lowest; NodeRefusedError for booleans."""
    if dtype is DType.i1:
        raise NodeRefusedError("the largest of windows of booleans is not taken")
    return -np.inf if dtype.is_float else np.iinfo(dtype.numpy).min


def need_steps(taps: Ints, strides: Ints, dilations: Ints) -> None:
    """RefusedError for a window without taps or steps, or wider than any signal."""
    for what, numbers in (("taps", taps), ("strides", strides), ("dilations", dilations)):
        if min(numbers, default=1) < 1:
            raise NodeRefusedError(f"{what} of a window are {list(numbers)}")
    for k, d in zip(taps, dilations, strict=True):
        if (k - 1) * d > MAX_REACH:
            raise NodeRefusedError(f"a window of {k} taps, {d} places apart, reaches farther than {MAX_REACH} places")


def need_window(taps: Ints, strides: Ints, dilations: Ints) -> None:
    """The same of a pool, each of whose taps is a node."""
    need_steps(taps, strides, dilations)
    if max(taps) > MAX_TAPS:
        raise NodeRefusedError(f"a pool of {max(taps)} taps is not taken, of at most {MAX_TAPS} along an axis it is")


def max_pool(x: Value, taps: Ints, strides: Ints, edges: Sequence[Edge], dilations: Ints, ceil: bool = False) -> Value:
    """The largest of each window of x [N,C,...]."""
    need_window(taps, strides, dilations)
    x, known = padded(x, edges, lowest(x.dtype))
    build: Any = (li.max_pool1d, li.max_pool2d)[len(taps) - 1]
    y: Value = build(x, _each(taps), _each(strides), _each(known), _each(dilations), ceil)
    return y


def mean_pool(
    x: Value, taps: Ints, strides: Ints, edges: Sequence[Edge], dilations: Ints, ceil: bool, counted: bool
) -> Value:
    """The mean of each window of x [N,C,...]; padding counts where `counted`."""
    need_window(taps, strides, dilations)
    closed = all(isinstance(low, int) and isinstance(high, int) for low, high in edges)
    if closed and set(dilations) == {1}:
        build: Any = (li.avg_pool1d, li.avg_pool2d)[len(taps) - 1]
        y: Value = build(x, _each(taps), _each(strides), _each(list(edges)), ceil, counted)
        return y
    ones = li.ones((1, 1, *x.shape[2:]), x.dtype)
    sums = []
    for v, around in ((x, 0.0), (ones, float(counted))):
        for k, (low, high) in enumerate(edges):
            v = _around(v, k + 2, low, high, around)
        if ceil:  # one more window, if it begins in x or before it
            for k, (_, high) in enumerate(edges):
                more = min(strides[k] - 1, (taps[k] - 1) * dilations[k] - high) if isinstance(high, int) else 0
                v = _around(v, k + 2, 0, more, 0.0)
        for k in range(len(taps)):
            v = reduce(li.add, seen(v, k + 2, taps[k], strides[k], dilations[k]))
        sums.append(v)
    return sums[0] / sums[1]


def _around(x: Value, axis: int, low: Dim, high: Dim, value: Any) -> Value:
    at = [(low, high) if k == axis else (0, 0) for k in range(x.rank)]
    return li.pad(x, [a for a, _ in at], [b for _, b in at], value=value)


def seen(x: Value, axis: int, taps: int, stride: int, dilation: int) -> list[Value]:
    """What each tap of a window sees along an axis of x, which has its padding."""
    width = (taps - 1) * dilation + 1
    steps = dims.add(dims.floordiv(dims.add(x.shape[axis], -width), stride), 1)
    reach = dims.add(dims.mul(dims.add(steps, -1), stride), 1)
    return [slice_axis(x, axis, k * dilation, dims.add(reach, k * dilation), stride) for k in range(taps)]


def largest(
    x: Value, taps: Ints, strides: Ints, edges: Sequence[Edge], dilations: Ints, ceil: bool, columns_first: bool = False
) -> Value:
    """Where the largest of each window of x [N,C,...] stands in its plane, i64: rows of the plane one after the other,
    or, with columns_first, its columns. Of equal ones the first row, and in it the first column; NaN is the largest.
    """
    need_window(taps, strides, dilations)
    sizes = x.shape[2:]
    places = _places(sizes, columns_first)
    v, at = x, places
    for k in reversed(range(len(taps))):
        low, high = edges[k]
        if ceil:
            width = (taps[k] - 1) * dilations[k] + 1
            assert isinstance(high, int)
            high += min(strides[k] - 1, width - 1 - high)
        v, at = _around(v, k + 2, low, high, lowest(v.dtype)), _around(at, k + 2, low, high, -1)
        window = (taps[k], strides[k], dilations[k])
        v, at = reduce(_better, zip(seen(v, k + 2, *window), seen(at, k + 2, *window), strict=True))
    return at


def _better(a: tuple[Value, Value], b: tuple[Value, Value]) -> tuple[Value, Value]:
    """The larger of two values with its place; the first of equal ones, unless it is padding."""
    (x, at), (y, other) = a, b
    take = li.logical_or(li.greater(y, x), li.logical_and(li.less(at, 0), li.greater_equal(other, 0)))
    if x.dtype.is_float:
        take = li.logical_or(take, li.logical_and(li.not_equal(y, y), li.equal(x, x)))
        take = li.logical_and(take, li.logical_or(li.equal(x, x), li.less(at, 0)))
    return li.where(take, y, x), li.where(take, other, li.broadcast_to(at, x.shape))


def _places(sizes: Sequence[Dim], columns_first: bool) -> Value:
    """The number of each element of a plane, [1,1,...]."""
    order = list(range(len(sizes)))
    order = order if columns_first else order[::-1]
    found, step = li.zeros((1, 1, *sizes), DType.i64), li.constant(np.int64(1))
    for k in order:
        found = found + li.iota((1, 1, *sizes), k + 2, DType.i64) * step
        step = step * size_value(sizes[k])
    return found


def size_value(d: Dim) -> Value:
    """A size as a number i64[]."""
    return li.constant(np.int64(d)) if isinstance(d, int) else SizeArray(np.array(d, object), DType.i64).value()

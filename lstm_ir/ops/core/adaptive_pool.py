"""Pools whose number of windows is given: window i of m over n places is floor(i n / m) ... ceil((i + 1) n / m) - 1.

The windows are PyTorch's; they overlap by a place where m does not divide n.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lstm_ir.ir import dims, options
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.location import here
from lstm_ir.ir.types import DimLike
from lstm_ir.ops.primitive.broadcast import as_values, shape_for
from lstm_ir.ops.primitive.reduce import max, mean
from lstm_ir.ops.primitive.shape import concat, reshape
from lstm_ir.ops.primitive.window import slice_axis

Sizes = Any  # a size for all axes, or one for each, None where nothing is pooled
Reduce = Callable[..., Value]


def adaptive_avg_pool1d(x: Any, output_size: DimLike) -> Value:
    """The means of `output_size` windows of x [N, C, L], as even as can be: [N, C, output_size]."""
    return _pool("adaptive_avg_pool1d", x, output_size, 1, mean)


def adaptive_avg_pool2d(x: Any, output_size: Sizes) -> Value:
    """The means of windows of x [N, C, H, W], so many along each axis (None: all): [N, C, *output_size]."""
    return _pool("adaptive_avg_pool2d", x, output_size, 2, mean)


def adaptive_max_pool1d(x: Any, output_size: DimLike) -> Value:
    """The largest of each of `output_size` windows of x [N, C, L], as even as can be: [N, C, output_size]."""
    return _pool("adaptive_max_pool1d", x, output_size, 1, max)


def adaptive_max_pool2d(x: Any, output_size: Sizes) -> Value:
    """The largest of windows of x [N, C, H, W], so many along each axis (None: all): [N, C, *output_size]."""
    return _pool("adaptive_max_pool2d", x, output_size, 2, max)


def _pool(op: str, x: Any, output_size: Any, rank: int, reduce: Reduce) -> Value:
    (v,) = as_values(op, x)
    if v.rank != rank + 2:
        raise IRError(message(op, f"takes [N, C, ..] of rank {rank + 2}", [("x", v.type)], here()))
    many = isinstance(output_size, (tuple, list))
    sizes = options.several(op, "output_size", output_size) if many else (output_size,) * rank
    if len(sizes) != rank:
        raise options.refuse(op, "output_size", output_size, f"{rank} of them")
    for axis, m in enumerate(sizes, 2):
        if m is not None:
            v = along(op, v, axis, shape_for(op, (m,))[0], reduce)
    return v


def along(op: str, x: Value, axis: int, m: dims.Dim, reduce: Reduce) -> Value:
    """`x` with m windows along one axis, each reduced."""
    n = x.shape[axis]
    if n == m:
        return x
    if m == 1 and n != 0:
        return reduce(x, axis, keepdims=True)
    if not isinstance(n, int) or not isinstance(m, int):
        raise IRError(message(op, f"{m} windows over the open size {n}", [("x", x.type)], here()))
    if m < 1 or n < 1:
        raise IRError(message(op, f"{m} windows over {n} places", [("x", x.type)], here()))
    if n % m == 0:
        return reduce(reshape(x, (*x.shape[:axis], m, n // m, *x.shape[axis + 1 :])), axis + 1)
    bounds = [((i * n) // m, -((-(i + 1) * n) // m)) for i in range(m)]
    return concat([reduce(slice_axis(x, axis, a, b), axis, keepdims=True) for a, b in bounds], axis)

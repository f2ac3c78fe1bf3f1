"""Pools over one or two axes: the largest, or the mean, of what a window sees.

    max_pool:  y[n, c, t] = max over k of x[n, c, t stride + k dilation - low], of those that are in x
    avg_pool:  y[n, c, t] = sum over k of x[n, c, t stride + k - low] / count[t]

count[t] is how many places of the window are in x, or, with count_include_pad, in x with its padding.
With ceil_mode a last window may end after the padding, if it begins before it: what is there is never
counted. A window is a window along one axis of windows along the other, and so computed axis by axis.
The gradient of a largest element goes to the first of equal ones, row by row, as PyTorch's does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from lstm_ir.ir import dims, options
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.opdef import Attr, Level, define, need
from lstm_ir.ir.pullback import Cts, only
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.core.windows import (
    ATTRS,
    DILATIONS,
    Axes,
    Padding,
    Pair,
    WindowAxis,
    axes_of,
    each,
    need_axes,
    need_steps,
    paddings,
    steps_of,
)
from lstm_ir.ops.primitive.broadcast import as_values
from lstm_ir.ops.primitive.elementwise import (
    add,
    convert,
    equal,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    select,
)
from lstm_ir.ops.primitive.fill import iota, zeros
from lstm_ir.ops.primitive.numpy_math import wide
from lstm_ir.ops.primitive.shape import reshape, stack
from lstm_ir.ops.primitive.size import size
from lstm_ir.ops.primitive.window import pad_axis, slice_axis

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]
POOL = {"window": Attr("ints"), **ATTRS}


def _axes(window: Ints, ceil_mode: bool, **attrs: Ints) -> Axes:
    """With ceil_mode one more window fits, if it begins in x or before it: more padding says that."""
    axes = axes_of(window, attrs)
    if not ceil_mode:
        return axes
    return tuple(replace(a, high=a.high + min(a.stride - 1, a.window - 1 - a.high)) for a in axes)


def _types(operand: TensorType, *, window: Ints, ceil_mode: bool, **attrs: Ints) -> TensorType:
    rank = len(window)
    need(operand.rank == rank + 2, f"takes [N, C, ..] of rank {rank + 2} for {rank} axes")
    for a in need_axes("the window", window, attrs):
        inside = 0 <= min(a.low, a.high) and max(a.low, a.high) < a.window
        need(inside, f"paddings {a.low} and {a.high} are not in 0..{a.window - 1}: a window may see nothing else")
    steps = need_steps(_axes(window, ceil_mode, **attrs), operand.shape[2:])
    return operand.with_shape((*operand.shape[:2], *steps))


def _padded(x: Value, axis: int, a: WindowAxis, value: Any) -> Value:
    return pad_axis(x, axis, a.low, a.high, value)


def _parts(x: Value, axis: int, a: WindowAxis, steps: Dim) -> list[Value]:
    """What each tap sees of x with its padding."""
    reach = dims.add(dims.mul(dims.add(steps, -1), a.stride), 1)
    starts = [k * a.dilation for k in range(a.taps)]
    return [slice_axis(x, axis, at, dims.add(reach, at), a.stride) for at in starts]


def _apart(parts: Sequence[Value], axis: int, a: WindowAxis, length: Dim) -> Value:
    """The transpose of `_parts`, without the padding: each part added where its tap saw it."""
    sums: list[Value] = []
    for phase in range(a.stride):
        mine = [(a.seen(k)[0], p) for k, p in enumerate(parts) if a.seen(k)[1] == phase]
        if mine:
            sums.append(reduce(add, [pad_axis(p, axis, at, a.reach - at) for at, p in mine]))
        else:
            like = pad_axis(parts[0], axis, 0, a.reach)
            sums.append(zeros(like.shape, like.dtype))
    out = stack(sums, axis + 1)
    shape = out.shape
    out = reshape(out, (*shape[:axis], dims.mul(shape[axis], a.stride), *shape[axis + 2 :]))
    return slice_axis(pad_axis(out, axis, -a.low, a.stride - 1), axis, 0, length)


# -- the largest


def lowest(dtype: DType) -> Any:
    """What is below all other elements."""
    return -np.inf if dtype.is_float else np.iinfo(dtype.numpy).min


def _max_types(operand: TensorType, **attrs: Any) -> TensorType:
    need(operand.dtype is not DType.i1, 'takes numbers, got i1; li.convert(x, "i32") converts')
    return _types(operand, **attrs)


def _max_numpy(x: Array, **attrs: Any) -> Array:
    """Axis by axis, tap by tap; NaN where any is."""
    axes = _axes(**attrs)
    edges = ((0, 0), (0, 0), *((a.low, a.high) for a in axes))
    out = np.pad(x, edges, constant_values=lowest(DType.of(x.dtype)))
    for k, (a, n) in enumerate(zip(axes, steps_of(axes, x.shape[2:]), strict=True)):
        at = [a.dilation * tap + a.stride * np.arange(int(n)) for tap in range(a.taps)]  # type: ignore[arg-type]
        out = reduce(np.maximum, [np.take(out, i, axis=k + 2) for i in at])
    return out


def _max_steps(x: Value, axes: Axes) -> list[Value]:
    """x, and what it is after each axis, the last axis first."""
    out = [x]
    for k in reversed(range(len(axes))):
        a, v = axes[k], out[-1]
        steps = a.steps(v.shape[k + 2])
        out.append(reduce(maximum, _parts(_padded(v, k + 2, a, lowest(v.dtype)), k + 2, a, steps)))
    return out


def _max_expand(operand: Value, **attrs: Any) -> Value:
    return _max_steps(operand, _axes(**attrs))[-1]


def _max_vjp(node: Node, cts: Cts) -> Cts:
    """To the first of equal ones along each axis, the rows' first; NaN is equal to none."""
    axes, ct = _axes(**node.attrs), only(cts)
    before = _max_steps(node.inputs[0], axes)
    for k, (x, y) in zip(range(len(axes)), zip(before[-2::-1], before[:0:-1], strict=True), strict=True):
        a, axis = axes[k], k + 2
        parts = _parts(_padded(x, axis, a, np.nan), axis, a, y.shape[axis])  # padding takes no share, even of -inf
        shares, taken = [], None
        for part in parts:
            hit = equal(part, y)
            first = hit if taken is None else logical_and(hit, logical_not(taken))
            taken = hit if taken is None else logical_or(taken, hit)
            shares.append(select(first, ct, zeros(ct.shape, ct.dtype)))
        ct = _apart(shares, axis, a, x.shape[axis])
    return (ct,)


MAX_POOL = define(
    "max_pool", "operand", attrs={**POOL, **DILATIONS, "ceil_mode": Attr("bool", False)},
    types=_max_types, numpy=_max_numpy, vjp=_max_vjp, expand=_max_expand, level=Level.core,
)  # fmt: skip


# -- the mean


def _avg_types(operand: TensorType, *, count_include_pad: bool, **attrs: Any) -> TensorType:
    need(operand.dtype.is_float, f'takes float elements, got {operand.dtype}; li.convert(x, "f32") converts')
    return _types(operand, **attrs)


def _bounds(window: Ints, attrs: Any, count_include_pad: bool) -> list[Ints]:
    """How far before and after x a place counts."""
    given = zip(window, attrs["padding_low"], attrs["padding_high"], strict=True)
    return [(low, high) if count_include_pad else (0, 0) for _, low, high in given]


def _avg_numpy(x: Array, *, window: Ints, ceil_mode: bool, count_include_pad: bool, **attrs: Ints) -> Array:
    """Sums axis by axis, by how many places of each window count; two-byte floats in float32."""
    axes = _axes(window, ceil_mode, **attrs)
    out = np.pad(wide(x), ((0, 0), (0, 0), *((a.low, a.high) for a in axes)))
    bounds = _bounds(window, attrs, count_include_pad)
    for k, (a, length, (low, high)) in enumerate(zip(axes, x.shape[2:], bounds, strict=True)):
        at = np.arange(a.taps) + a.stride * np.arange(a.steps(length))[:, None]  # type: ignore[arg-type]
        inside = ((at - a.low >= -low) & (at - a.low < length + high)).sum(1).astype(out.dtype)
        out = reduce(np.add, [np.take(out, at[:, tap], axis=k + 2) for tap in range(a.taps)])
        out = out / inside.reshape(-1, *(1,) * (x.ndim - k - 3))
    return out.astype(x.dtype)


def _avg_expand(operand: Value, *, window: Ints, ceil_mode: bool, count_include_pad: bool, **attrs: Ints) -> Value:
    inner = operand.dtype.compute_dtype
    out = convert(operand, inner)
    axes = _axes(window, ceil_mode, **attrs)
    bounds = _bounds(window, attrs, count_include_pad)
    for k in reversed(range(len(axes))):
        a, axis, (low, high) = axes[k], k + 2, bounds[k]
        length = out.shape[axis]
        steps = a.steps(length)
        out = reduce(add, _parts(_padded(out, axis, a, 0), axis, a, steps))
        if (a.low, a.high) == (low, high):
            out = out * constant(1 / a.taps, inner) if a.taps & (a.taps - 1) == 0 else out / constant(a.taps, inner)
        else:
            count = _count(a, length, steps, low, high, inner)
            out = out / reshape(count, (steps, *(1,) * (out.rank - axis - 1)))
    return convert(out, operand.dtype)


def _count(a: WindowAxis, length: Dim, steps: Dim, low: int, high: int, dtype: DType) -> Value:
    """[steps]: places of each window in [-low, length + high)."""
    start = iota((steps,), 0, DType.i32) * a.stride - a.low
    end = constant(length, DType.i32) if isinstance(length, int) else size(length)
    found = minimum(start + a.taps, end + high) - maximum(start, -low)
    return convert(found, dtype)


def _avg_vjp(node: Node, cts: Cts) -> Cts:
    """To every place of the window that is in x alike."""
    (x,), attrs = node.inputs, dict(node.attrs)
    include, ceil_mode, window = (attrs.pop(name) for name in ("count_include_pad", "ceil_mode", "window"))
    axes = _axes(window, ceil_mode, **attrs)
    inner = x.dtype.compute_dtype
    ct = convert(only(cts), inner)
    for k, (a, (low, high)) in enumerate(zip(axes, _bounds(window, attrs, include), strict=True)):
        axis, length = k + 2, x.shape[k + 2]
        steps = a.steps(length)
        count = _count(a, length, steps, low, high, inner)
        share = ct / reshape(count, (steps, *(1,) * (ct.rank - axis - 1)))
        ct = _apart([share] * a.taps, axis, a, length)
    return (convert(ct, x.dtype),)


AVG_POOL = define(
    "avg_pool", "operand",
    attrs={**POOL, "ceil_mode": Attr("bool", False), "count_include_pad": Attr("bool", True)},
    types=_avg_types, numpy=_avg_numpy, vjp=_avg_vjp, expand=_avg_expand, level=Level.core,
)  # fmt: skip


# -- builders


def _given(op: str, rank: int, window: Pair, stride: Pair | None, padding: Padding, ceil_mode: bool) -> dict[str, Any]:
    taps, (low, high) = each(op, "kernel_size", window, rank), paddings(op, padding, rank)
    strides = taps if stride is None else each(op, "stride", stride, rank)
    ceil_mode = options.flag(op, "ceil_mode", ceil_mode)
    return {"window": taps, "strides": strides, "padding_low": low, "padding_high": high, "ceil_mode": ceil_mode}


def _max_pool(
    rank: int, x: Any, window: Pair, stride: Pair | None, padding: Padding, dilation: Pair, ceil_mode: bool
) -> Value:
    (v,) = as_values("max_pool", x)
    given = _given("max_pool", rank, window, stride, padding, ceil_mode)
    return make(MAX_POOL, v, **given, dilations=each("max_pool", "dilation", dilation, rank)).values[0]


def _avg_pool(
    rank: int, x: Any, window: Pair, stride: Pair | None, padding: Padding, ceil_mode: bool, count_include_pad: bool
) -> Value:
    (v,) = as_values("avg_pool", x)
    given = _given("avg_pool", rank, window, stride, padding, ceil_mode)
    counted = options.flag("avg_pool", "count_include_pad", count_include_pad)
    return make(AVG_POOL, v, **given, count_include_pad=counted).values[0]


def max_pool1d(
    x: Any, kernel_size: int, stride: int | None = None, padding: Padding = 0, dilation: int = 1,
    ceil_mode: bool = False,
) -> Value:  # fmt: skip
    """The largest of each window of x [N, C, L]; NaN if any is. The stride is kernel_size if not given."""
    return _max_pool(1, x, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d(
    x: Any, kernel_size: Pair, stride: Pair | None = None, padding: Padding = 0, dilation: Pair = 1,
    ceil_mode: bool = False,
) -> Value:  # fmt: skip
    """The largest of each window of x [N, C, H, W]; NaN if any is."""
    return _max_pool(2, x, kernel_size, stride, padding, dilation, ceil_mode)


def avg_pool1d(
    x: Any, kernel_size: int, stride: int | None = None, padding: Padding = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Value:  # fmt: skip
    """The mean of each window of x [N, C, L]; padding is zeros that count, unless count_include_pad is False."""
    return _avg_pool(1, x, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool2d(
    x: Any, kernel_size: Pair, stride: Pair | None = None, padding: Padding = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Value:  # fmt: skip
    """The mean of each window of x [N, C, H, W]; padding as in avg_pool1d."""
    return _avg_pool(2, x, kernel_size, stride, padding, ceil_mode, count_include_pad)

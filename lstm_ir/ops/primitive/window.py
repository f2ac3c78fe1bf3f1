"""Ops that cut out and put in: slice, pad, dynamic_slice, dynamic_update_slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lstm_ir.ir import dims, options
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.opdef import Attr, Trait, define, need, need_at_least
from lstm_ir.ir.pullback import Cts, only
from lstm_ir.ir.types import DimLike, DType, Shape, TensorType
from lstm_ir.ops.primitive.broadcast import as_values, shape_for
from lstm_ir.ops.primitive.fill import zeros_like
from lstm_ir.ops.primitive.reduce import sum as reduce_sum
from lstm_ir.ops.primitive.shape import expand_dims, reshape
from lstm_ir.ops.primitive.slice_sums import SLICE_SUMS

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]


def span(start: Dim, limit: Dim, stride: int) -> Dim:
    """How many steps of `stride` lie in [start, limit)."""
    return dims.floordiv(dims.add(dims.add(limit, dims.mul(start, -1)), stride - 1), stride)


def _slice_types(operand: TensorType, *, start_indices: Shape, limit_indices: Shape, strides: Ints) -> TensorType:
    given = (len(start_indices), len(limit_indices), len(strides))
    need(set(given) == {operand.rank}, f"{given} starts, limits and strides for {operand.rank} axes")
    out: list[Dim] = []
    for axis, (lo, hi, k) in enumerate(zip(start_indices, limit_indices, strides, strict=True)):
        size = operand.shape[axis]
        need(k >= 1, f"the stride on axis {axis} is {k}, not 1 or more")
        part = f"[{lo}, {hi}) on axis {axis}"
        need_at_least(lo, 0, f"{part} starts before 0")
        need_at_least(dims.add(hi, dims.mul(lo, -1)), 0, f"{part} ends before it starts")
        need_at_least(dims.add(size, dims.mul(hi, -1)), 0, f"{part} is outside [0, {size})")
        out.append(span(lo, hi, k))
    return operand.with_shape(out)


def _slice_numpy(x: Array, *, start_indices: Ints, limit_indices: Ints, strides: Ints) -> Array:
    picks = zip(start_indices, limit_indices, strides, strict=True)
    return x[tuple(np.s_[lo:hi:k] for lo, hi, k in picks)]


def _slice_vjp(node: Node, cts: Cts) -> Cts:
    """The cotangent at its place in zeros."""
    ct, (x,), attrs = only(cts), node.inputs, node.attrs
    starts, limits, strides = attrs["start_indices"], attrs["limit_indices"], attrs["strides"]
    cut = False
    for axis, k in enumerate(strides):
        if k > 1:
            ct, cut = _spread(ct, axis, k), True
    high = [dims.add(n, dims.mul(hi, -1)) for n, hi in zip(x.shape, limits, strict=True)]
    wide = pad(ct, starts, high)
    return (slice(wide, (0,) * x.rank, x.shape) if cut else wide,)


def _spread(ct: Value, axis: int, k: int) -> Value:
    """k - 1 zeros after every element of `axis`. Unlike interior padding, right for size 0 too."""
    apart = expand_dims(ct, axis + 1)
    zeros = [0] * apart.rank
    after = list(zeros)
    after[axis + 1] = k - 1
    shape = (*ct.shape[:axis], dims.mul(ct.shape[axis], k), *ct.shape[axis + 1 :])
    return reshape(pad(apart, zeros, after), shape)


def _pad_vjp(node: Node, cts: Cts) -> Cts:
    """The operand's elements taken out again, and the sum of what was put around them."""
    ct, x, attrs = only(cts), node.inputs[0], node.attrs
    lows, highs = attrs["edge_padding_low"], attrs["edge_padding_high"]
    gaps = attrs["interior_padding"]
    around = pad(zeros_like(x), lows, highs, gaps, constant(1, x.dtype))
    back = pad(ct, _cut(lows), _cut(highs))
    starts = [0 if isinstance(lo, int) and lo < 0 else lo for lo in lows]
    ends = [
        dims.add(lo, dims.add(n, dims.mul(dims.add(n, -1), k)) if n != 0 else 0)
        for lo, n, k in zip(starts, x.shape, gaps, strict=True)
    ]
    return slice(back, starts, ends, [k + 1 for k in gaps]), reduce_sum(ct * around)


def _cut(edges: tuple[dims.Dim, ...]) -> list[dims.Dim]:
    """What negative edges cut off."""
    return [-e if isinstance(e, int) and e < 0 else 0 for e in edges]


def _dynamic_slice_vjp(node: Node, cts: Cts) -> tuple[Value, tuple[None, ...]]:
    """The cotangent at its place in zeros."""
    x, *starts = node.inputs
    return dynamic_update_slice(zeros_like(x), only(cts), starts), (None,) * len(starts)


def _update_vjp(node: Node, cts: Cts) -> tuple[Value, Value, tuple[None, ...]]:
    """Zero where it was overwritten; the window for the update."""
    ct, (_, update, *starts) = only(cts), node.inputs
    kept = dynamic_update_slice(ct, zeros_like(update), starts)
    return kept, dynamic_slice(ct, starts, update.shape), (None,) * len(starts)


SLICE = define(
    "slice", "operand",
    attrs={"start_indices": Attr("dims"), "limit_indices": Attr("dims"), "strides": Attr("ints")},
    types=_slice_types, numpy=_slice_numpy, vjp=_slice_vjp, joint_vjp=SLICE_SUMS,
    traits=(Trait.data_movement,),
)  # fmt: skip


def padded(size: Dim, low: Dim, high: Dim, interior: int) -> Dim:
    """Size after padding: `interior` elements between neighbours, then the edges."""
    grown = dims.add(size, dims.mul(dims.add(size, -1), interior)) if interior and size != 0 else size
    return dims.add(dims.add(grown, low), high)


def _pad_types(
    operand: TensorType,
    padding_value: TensorType,
    *,
    edge_padding_low: Shape,
    edge_padding_high: Shape,
    interior_padding: Ints,
) -> TensorType:
    need(padding_value == TensorType((), operand.dtype), f"padding_value is {padding_value}, not {operand.dtype}[]")
    given = (len(edge_padding_low), len(edge_padding_high), len(interior_padding))
    need(set(given) == {operand.rank}, f"{given} low, high and interior paddings for {operand.rank} axes")
    out: list[Dim] = []
    for axis, size in enumerate(operand.shape):
        lo, hi, k = edge_padding_low[axis], edge_padding_high[axis], interior_padding[axis]
        need(k >= 0, f"the interior padding of axis {axis} is {k}, below 0")
        for edge in (lo, hi):
            if not isinstance(edge, int):
                need_at_least(edge, 0, f"the padding {edge} of axis {axis} is below 0")
        if k and not isinstance(size, int):
            need_at_least(size, 1, f"interior padding of axis {axis}, which is empty")
        out.append(padded(size, lo, hi, k))
        need_at_least(out[-1], 0, f"axis {axis} of size {size} padded by {lo} and {hi} is below 0")
    return operand.with_shape(out)


def _pad_numpy(
    x: Array, value: Array, *, edge_padding_low: Ints, edge_padding_high: Ints, interior_padding: Ints
) -> Array:
    """Element j goes to low + j (interior + 1), if that is inside."""
    edges = list(zip(x.shape, edge_padding_low, edge_padding_high, interior_padding, strict=True))
    sizes = [dims.evaluate(padded(n, lo, hi, k), {}) for n, lo, hi, k in edges]
    out = np.full(sizes, value, x.dtype)
    places = [lo + np.arange(n) * (k + 1) for n, lo, _, k in edges]
    kept = [(p >= 0) & (p < size) for p, size in zip(places, sizes, strict=True)]
    at = np.ix_(*(p[ok] for p, ok in zip(places, kept, strict=True)))
    out[at] = x[np.ix_(*kept)]
    return out


PAD = define(
    "pad", "operand padding_value",
    attrs={
        "edge_padding_low": Attr("offsets"), "edge_padding_high": Attr("offsets"),
        "interior_padding": Attr("ints"),
    },
    types=_pad_types, numpy=_pad_numpy, vjp=_pad_vjp,
)  # fmt: skip


def _need_starts(operand: TensorType, starts: tuple[TensorType, ...]) -> None:
    need(len(starts) == operand.rank, f"{len(starts)} start indices for {operand.rank} axes")
    for i, t in enumerate(starts):
        need(t == TensorType((), DType.i32), f"start index {i} is {t}, not i32[]")


def _need_room(operand: TensorType, sizes: Shape) -> None:
    need(len(sizes) == operand.rank, f"{len(sizes)} sizes for {operand.rank} axes")
    for axis, (n, size) in enumerate(zip(operand.shape, sizes, strict=True)):
        need_at_least(size, 0, f"the size {size} on axis {axis} is below 0")
        need_at_least(dims.add(n, dims.mul(size, -1)), 0, f"{size} elements do not fit axis {axis} of size {n}")


def _dynamic_slice_types(
    operand: TensorType, start_indices: tuple[TensorType, ...], *, slice_sizes: Shape
) -> TensorType:
    _need_starts(operand, start_indices)
    _need_room(operand, slice_sizes)
    return operand.with_shape(slice_sizes)


def _window(shape: Ints, starts: tuple[Array, ...], sizes: Ints) -> Any:
    """The window moved inside: start = clamp(0, start, shape - size)."""
    first = [min(max(int(s), 0), n - k) for s, n, k in zip(starts, shape, sizes, strict=True)]
    return tuple(np.s_[s : s + k] for s, k in zip(first, sizes, strict=True))


DYNAMIC_SLICE = define(
    "dynamic_slice", "operand start_indices*", attrs={"slice_sizes": Attr("dims")},
    types=_dynamic_slice_types,
    numpy=lambda x, starts, *, slice_sizes: x[_window(x.shape, starts, slice_sizes)],
    vjp=_dynamic_slice_vjp, traits=(Trait.data_movement,),
)  # fmt: skip


def _update_types(operand: TensorType, update: TensorType, start_indices: tuple[TensorType, ...]) -> TensorType:
    need(update.dtype is operand.dtype, f"update is {update.dtype}, operand {operand.dtype}")
    _need_starts(operand, start_indices)
    _need_room(operand, update.shape)
    return operand


def _update_numpy(x: Array, update: Array, starts: tuple[Array, ...]) -> Array:
    out = x.copy()
    out[_window(x.shape, starts, update.shape)] = update
    return out


DYNAMIC_UPDATE_SLICE = define(
    "dynamic_update_slice", "operand update start_indices*", types=_update_types,
    numpy=_update_numpy, vjp=_update_vjp, traits=(Trait.data_movement,),
)  # fmt: skip


def slice(x: Any, start: Sequence[DimLike], limit: Sequence[DimLike], strides: Sequence[int] | None = None) -> Value:
    """Elements start, start + stride, ... below limit on every axis."""
    (v,) = as_values("slice", x)
    lo, hi = shape_for("slice", start), shape_for("slice", limit)
    steps = (1,) * v.rank if strides is None else options.several("slice", "strides", strides)
    if lo == (0,) * v.rank and hi == v.shape and steps == (1,) * v.rank:
        return v
    return make(SLICE, v, start_indices=lo, limit_indices=hi, strides=steps).values[0]


def slice_axis(x: Value, axis: int, start: Dim, limit: Dim, stride: int = 1) -> Value:
    """x[..., start:limit:stride, ...] on one axis."""
    lo: list[DimLike] = [0] * x.rank
    hi: list[DimLike] = list(x.shape)
    steps = [1] * x.rank
    lo[axis], hi[axis], steps[axis] = start, limit, stride
    return slice(x, lo, hi, steps)


def edges(low: Sequence[DimLike], high: Sequence[DimLike]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """How far each axis is padded before and after, texts read as sizes."""
    lo, hi = (
        tuple(dims.parse(d) if isinstance(d, str) else d for d in options.several("pad", name, edge))
        for name, edge in (("low", low), ("high", high))
    )
    return lo, hi


def pad(
    x: Any, low: Sequence[DimLike], high: Sequence[DimLike], interior: Sequence[int] | None = None, value: Any = 0
) -> Value:
    """x with `value` before, after and between its elements; a negative edge cuts off."""
    (v,) = as_values("pad", x)
    fill = value if isinstance(value, Value) else constant(value, v.dtype)
    lo, hi = edges(low, high)
    gaps = (0,) * v.rank if interior is None else options.several("pad", "interior", interior)
    if all(options.is_int(n) and n == 0 for n in (*lo, *hi, *gaps)) and len(lo) == len(hi) == len(gaps) == v.rank:
        return v
    node = make(
        PAD, v, fill, edge_padding_low=lo, edge_padding_high=hi, interior_padding=gaps
    )  # fmt: skip
    return node.values[0]


def pad_axis(x: Value, axis: int, low: DimLike, high: DimLike, value: Any = 0) -> Value:
    """x with `value` before and after on one axis; a negative number cuts off."""
    before: list[DimLike] = [0] * x.rank
    after = list(before)
    before[axis], after[axis] = low, high
    return pad(x, before, after, value=value)


def _starts(indices: Sequence[Any]) -> tuple[Value, ...]:
    return tuple(i if isinstance(i, Value) else constant(i, DType.i32) for i in indices)


def dynamic_slice(x: Any, start: Sequence[Any], sizes: Sequence[DimLike]) -> Value:
    """The window of `sizes` at `start` (i32 scalars), moved inside x where it sticks out."""
    (v,) = as_values("dynamic_slice", x)
    return make(DYNAMIC_SLICE, v, _starts(start), slice_sizes=sizes).values[0]


def dynamic_update_slice(x: Any, update: Any, start: Sequence[Any]) -> Value:
    """x with the window at `start` replaced by `update`, moved inside where it sticks out."""
    v, u = as_values("dynamic_update_slice", x, update)
    return make(DYNAMIC_UPDATE_SLICE, v, u, _starts(start)).values[0]

"""`stencil`: products summed over fixed neighbours, which convolutions of stride 1 are.

    y[n,g,m,i,j] = sum over e, k of lhs[n,g,e,planes[k],i + rows[k],j + columns[k]] rhs[g,m,e,k]

Planes are what a stride leaves: of stride 2, even and odd places are a plane each, and in every plane
neighbours of a result are neighbours in memory. A CPU has a kernel for it; `products` says it by
others, one product of what all taps see with a matrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.opdef import Attr, define, need, need_at_least, need_equal
from lstm_ir.ir.pullback import Cts, only
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive.elementwise import add
from lstm_ir.ops.primitive.fill import zeros
from lstm_ir.ops.primitive.linear import dot_general
from lstm_ir.ops.primitive.reduce import sum, wide
from lstm_ir.ops.primitive.shape import concat, expand_dims, reshape, stack, transpose
from lstm_ir.ops.primitive.window import pad, slice, slice_axis

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]


class Taps(NamedTuple):
    """Where each tap reads: its plane, and how many rows and columns after the result's place."""

    planes: Ints
    rows: Ints
    columns: Ints

    @classmethod
    def of(cls, attrs: Mapping[str, Any]) -> Taps:
        """Those of a node."""
        return cls(*(tuple(attrs[name]) for name in cls._fields))

    def picked(self, which: Sequence[int]) -> Taps:
        """Some of them."""
        return Taps(*(tuple(axis[k] for k in which) for axis in self))


def _types(
    lhs: TensorType, rhs: TensorType, *, planes: Ints, rows: Ints, columns: Ints, height: Dim, width: Dim
) -> TensorType:
    need(lhs.dtype is rhs.dtype, f"lhs is {lhs.dtype}, rhs {rhs.dtype}; convert one of them")
    need(lhs.dtype is not DType.i1, "takes numbers, got i1")
    need(lhs.rank == 6 and rhs.rank == 4, "takes lhs [N, G, E, S, H, W] and rhs [G, M, E, K]")
    (batch, groups, each, count, high, across), (also, more, same, taps) = lhs.shape, rhs.shape
    need_equal(groups, also, f"{groups} groups of lhs, {also} of rhs")
    need_equal(each, same, f"{each} channels of lhs, {same} of rhs")
    given = (len(planes), len(rows), len(columns))
    need(len(planes) > 0 and set(given) == {taps}, f"{given} planes, rows and columns for {taps} taps")
    need(min(*planes, *rows, *columns, 0) == 0, "planes, rows and columns are 0 or more")
    need_at_least(dims.add(count, -max(planes)), 1, f"plane {max(planes)} of {count}")
    for size, wanted, shifts, what in ((high, height, rows, "rows"), (across, width, columns, "columns")):
        need_at_least(wanted, 0, f"{wanted} {what}")
        left = dims.add(size, dims.mul(wanted, -1))
        need_at_least(left, max(shifts), f"{wanted} {what} from {max(shifts)} on do not fit {size}")
    return TensorType((batch, groups, more, height, width), lhs.dtype)


def _numpy(x: Array, w: Array, *, planes: Ints, rows: Ints, columns: Ints, height: int, width: int) -> Array:
    """One product per tap; two-byte floats are summed in float32."""
    xs, ws = wide(x), wide(w)
    out = np.zeros((*x.shape[:2], w.shape[1], height, width), xs.dtype)
    for k, (s, i, j) in enumerate(zip(planes, rows, columns, strict=True)):
        out += np.einsum("ngehw,gme->ngmhw", xs[:, :, :, s, i : i + height, j : j + width], ws[..., k])
    return out.astype(x.dtype)


def _vjp(node: Node, cts: Cts) -> Cts:
    """Gradients of lhs, plane by plane, and of rhs."""
    (lhs, rhs), ct, taps = node.inputs, only(cts), Taps.of(node.attrs)
    count, height, width = lhs.shape[3:]
    assert isinstance(count, int)
    return spread(ct, transpose(rhs, (0, 2, 1, 3)), taps, count, height, width), tap_products(lhs, ct, taps)


STENCIL = define(
    "stencil", "lhs rhs",
    attrs={
        "planes": Attr("ints"), "rows": Attr("ints"), "columns": Attr("ints"), "height": Attr("dim"),
        "width": Attr("dim"),
    },
    types=_types, numpy=_numpy, vjp=_vjp,
)  # fmt: skip


def stencil(lhs: Value, rhs: Value, taps: Taps, height: Dim, width: Dim) -> Value:
    """lhs [N,G,E,S,H,W] with rhs [G,M,E,K] -> [N,G,M,height,width]."""
    return make(STENCIL, lhs, rhs, **taps._asdict(), height=height, width=width).values[0]


def spread(rows: Value, rhs: Value, taps: Taps, count: int, height: Dim, width: Dim) -> Value:
    """The transpose by lhs: rows [N,G,M,h,w] with rhs [G,E,M,K] -> [N,G,E,count,height,width].

    Each plane is a stencil of the taps that read it.
    """
    planes = []
    for plane in range(count):
        which = [k for k, s in enumerate(taps.planes) if s == plane]
        if not which:
            planes.append(zeros((*rows.shape[:2], rhs.shape[1], height, width), rows.dtype))
            continue
        mine = taps.picked(which)
        down, right = max(mine.rows), max(mine.columns)
        rest = [dims.add(d, dims.mul(n, -1)) for d, n in ((height, rows.shape[3]), (width, rows.shape[4]))]
        around = expand_dims(pad(rows, (0, 0, 0, down, right), (0, 0, 0, *rest)), 3)
        back = Taps((0,) * len(which), tuple(down - i for i in mine.rows), tuple(right - j for j in mine.columns))
        planes.append(stencil(around, _of_taps(rhs, which), back, height, width))
    return stack(planes, 3)


def _of_taps(rhs: Value, which: Sequence[int]) -> Value:
    """rhs [.., K] with these taps alone."""
    axis = rhs.rank - 1
    if list(which) == list(range(rhs.shape[axis])):
        return rhs
    steps = {b - a for a, b in pairwise(which)} or {1}
    if len(steps) == 1 and min(steps) > 0:
        return slice_axis(rhs, axis, which[0], which[-1] + 1, min(steps))
    return concat([slice_axis(rhs, axis, k, k + 1) for k in which], axis)


# -- by other primitives


def products(lhs: Value, rhs: Value, taps: Taps, height: Dim, width: Dim) -> Value:
    """What `stencil` is, by one product of what all taps see with a matrix.

    Channels lie last: what a tap sees is runs of memory, and the product one of many rows with a
    matrix. Groups are a batch axis. Where a group has one channel, it is a sum over taps.
    """
    (groups, more, each, count), batch = rhs.shape, lhs.shape[0]
    if groups != 1 and each == 1:
        parts = [
            _seen_by(lhs, tap, height, width) * reshape(slice_axis(rhs, 3, k, k + 1), (groups, more, 1, 1))
            for k, tap in enumerate(zip(*taps, strict=True))
        ]
        return reduce(add, parts)
    depth = dims.mul(each, count)
    seen = _windows(lhs, taps, height, width)
    places = dims.product((batch, height, width))
    if groups == 1:
        by_row = count == 1  # then the matrix is read as it lies, [M, E]
        matrix = reshape(rhs if by_row else transpose(rhs, (0, 3, 2, 1)), (more, depth) if by_row else (depth, more))
        rows = dot_general(reshape(seen, (places, depth)), matrix, ((1,), (1 if by_row else 0,)))
        return transpose(reshape(rows, (batch, 1, height, width, more)), (0, 1, 4, 2, 3))
    matrix = reshape(transpose(rhs, (0, 3, 2, 1)), (groups, depth, more))
    rows = dot_general(reshape(seen, (groups, places, depth)), matrix, ((2,), (1,)), ((0,), (0,)))
    return transpose(reshape(rows, (groups, batch, height, width, more)), (1, 0, 4, 2, 3))


def tap_products(lhs: Value, ct: Value, taps: Taps) -> Value:
    """[G,M,E,K]: lhs [N,G,E,S,H,W] at each tap times ct [N,G,M,height,width], summed over places."""
    (batch, groups, more, height, width), each, count = ct.shape, lhs.shape[2], len(taps.planes)
    if groups != 1 and each == 1:
        parts = [_seen_by(lhs, tap, height, width) for tap in zip(*taps, strict=True)]
        sums = [reshape(sum(part * ct, (0, 3, 4)), (groups, more, 1, 1)) for part in parts]
        return concat(sums, 3)
    depth, places = dims.mul(each, count), dims.product((batch, height, width))
    seen, rows = _windows(lhs, taps, height, width), transpose(ct, (1, 0, 3, 4, 2))
    if groups == 1:
        met = dot_general(reshape(seen, (places, depth)), reshape(rows, (places, more)), ((0,), (0,)))
    else:
        seen, rows = reshape(seen, (groups, places, depth)), reshape(rows, (groups, places, more))
        if isinstance(groups, int) and groups <= GROUPS_APART:
            met = concat([dot_general(_group(seen, g), _group(rows, g), ((0,), (0,))) for g in range(groups)], 0)
        else:
            met = dot_general(seen, rows, ((1,), (1,)), ((0,), (0,)))
    return transpose(reshape(met, (groups, count, each, more)), (0, 3, 2, 1))


def _group(v: Value, g: int) -> Value:
    """One of the groups that lie along the first axis."""
    return reshape(slice_axis(v, 0, g, g + 1), v.shape[1:])


def _seen_by(lhs: Value, tap: tuple[int, ...], height: Dim, width: Dim) -> Value:
    """[N,G,E,height,width] that one tap sees."""
    s, i, j = tap
    low = (0, 0, 0, s, i, j)
    high = (*lhs.shape[:3], s + 1, dims.add(height, i), dims.add(width, j))
    return reshape(slice(lhs, low, high), (*lhs.shape[:3], height, width))


GROUPS_APART = 16  # groups whose sums of outer products are products of their own, at most; figure not kept
JOINED = 16  # parts of a concatenation; IREE compiles ones of many more slowly, figure not kept


def _windows(lhs: Value, taps: Taps, height: Dim, width: Dim) -> Value:
    """[G,N,height,width,K E]: what all taps see, side by side."""
    last = transpose(lhs, (1, 0, 4, 5, 3, 2))
    groups, batch, _, _, _, each = last.shape
    parts: list[Value] = []
    for (s, i, j), run in _runs(taps):
        low = (0, 0, i, j, s, 0)
        high = (groups, batch, dims.add(height, i), dims.add(width, j), s + run, each)
        parts.append(reshape(slice(last, low, high), (groups, batch, height, width, dims.mul(each, run))))
    while len(parts) > JOINED:
        parts = [concat(parts[at : at + JOINED], 4) for at in range(0, len(parts), JOINED)]
    return concat(parts, 4)


def _runs(taps: Taps) -> list[tuple[tuple[int, int, int], int]]:
    """Taps that read neighbouring planes at one place are one slice: the first, and how many."""
    out: list[tuple[tuple[int, int, int], int]] = []
    for s, i, j in zip(*taps, strict=True):
        if out:
            (first, row, column), run = out[-1]
            if (first + run, row, column) == (s, i, j):
                out[-1] = (first, row, column), run + 1
                continue
        out.append(((s, i, j), 1))
    return out

"""`stencil` and its gradient by the second operand: products summed over neighbours, as convolutions are.

    y[n,g,m,i,j]  = sum over e, k of z[n,g,e, i strides[0] + rows[k], j strides[1] + columns[k]] rhs[g,m,e,k]
    d[g,m,e,k]    = sum over n, i, j of z[n,g,e, i strides[0] + rows[k], j strides[1] + columns[k]] ct[n,g,m,i,j]

z is lhs [N,G,E,H,W] with spacing - 1 zeros between neighbours, and with low and high zeros around it, or less of
it where these are negative. A stride or a spacing is 1 on each axis: the gradient by lhs is a stencil of the
cotangent in which both change places. A CPU has kernels; `planes.py` says both by other primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.opdef import Attr, Trait, define, need, need_at_least, need_equal
from lstm_ir.ir.pullback import Cts, only
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive.numpy_math import wide
from lstm_ir.ops.primitive.shape import transpose

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]
Both = tuple[int, int]


@dataclass(frozen=True)
class Taps:
    """Where each tap reads: rows and columns after the result's place, in lhs with its padding."""

    rows: Ints
    columns: Ints
    strides: Both = (1, 1)
    spacing: Both = (1, 1)
    low: Both = (0, 0)
    high: Both = (0, 0)

    @classmethod
    def of(cls, attrs: Mapping[str, Any]) -> Taps:
        """Those of a node."""
        return cls(*(tuple(attrs[f.name]) for f in fields(cls)))

    @property
    def attrs(self) -> dict[str, Ints]:
        """As a node has them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def reach(self) -> Both:
        """The farthest row and column."""
        return max(self.rows), max(self.columns)

    def __len__(self) -> int:
        return len(self.rows)

    def picked(self, which: Sequence[int]) -> Taps:
        """Some of them."""
        return replace(self, rows=tuple(self.rows[k] for k in which), columns=tuple(self.columns[k] for k in which))

    def turned(self, sizes: Sequence[Dim], results: Sequence[Dim]) -> Taps:
        """Those of the gradient by lhs: what reads a place becomes where it is read from.

        `sizes` are the last two of lhs, `results` the height and width. Few results leave places that none reads.
        """
        down, right = self.reach
        rest = [max(pair) - 1 for pair in zip(self.strides, self.spacing, strict=True)]
        high = [r - h + more for r, h, more in zip(self.reach, self.high, rest, strict=True)]
        low = [r - n for r, n in zip(self.reach, self.low, strict=True)]
        for k, reach in enumerate(self.reach):
            read = dims.mul(dims.add(results[k], -1), self.strides[k])
            missing = dims.add(dims.mul(dims.add(sizes[k], -1), self.spacing[k]), dims.mul(read, -1))
            if isinstance(missing, int):
                high[k] = max(high[k], reach + missing - low[k])
        return Taps(
            tuple(down - i for i in self.rows), tuple(right - j for j in self.columns), self.spacing, self.strides,
            (low[0], low[1]), (high[0], high[1]),
        )  # fmt: skip


ATTRS = {name: Attr("ints") for name in ("rows", "columns", "strides", "spacing", "low", "high")}


def _need_taps(taps: Taps, count: Dim) -> None:
    given = (len(taps.rows), len(taps.columns))
    need(given[0] > 0 and set(given) == {count}, f"{given} rows and columns for {count} taps")
    need(min(*taps.rows, *taps.columns) >= 0, "rows and columns are 0 or more")
    for name in ("strides", "spacing", "low", "high"):
        need(len(getattr(taps, name)) == 2, f"{name} are of two axes")
    need(min(*taps.strides, *taps.spacing) >= 1, "strides and spacing are 1 or more")
    both = zip(taps.strides, taps.spacing, strict=True)
    need(all(1 in pair for pair in both), f"strides {taps.strides} with spacing {taps.spacing}: one of both is 1")


def _need_room(taps: Taps, sizes: Sequence[Dim], results: Sequence[Dim]) -> None:
    for k, what in enumerate(("rows", "columns")):
        size, wanted = sizes[k], results[k]
        need_at_least(wanted, 0, f"{wanted} {what}")
        spread = dims.add(dims.mul(dims.add(size, -1), taps.spacing[k]), 1)
        edges = taps.low[k] + taps.high[k]
        last = dims.mul(dims.add(wanted, -1), taps.strides[k])
        room = dims.add(dims.add(spread, edges), dims.mul(last, -1))
        said = (
            f"{wanted} {what} from {taps.reach[k]} on do not fit {size} with {taps.low[k]} and {taps.high[k]} around it"
        )
        if wanted != 0 and size != 0:
            need_at_least(room, taps.reach[k] + 1, said)


def _same(lhs: TensorType, other: TensorType) -> None:
    need(lhs.dtype is other.dtype, f"lhs is {lhs.dtype}, rhs {other.dtype}; convert one of them")
    need(lhs.dtype is not DType.i1, "takes numbers, got i1")


def _types(lhs: TensorType, rhs: TensorType, *, height: Dim, width: Dim, **attrs: Ints) -> TensorType:
    _same(lhs, rhs)
    need(lhs.rank == 5 and rhs.rank == 4, "takes lhs [N, G, E, H, W] and rhs [G, M, E, K]")
    (batch, groups, each, *sizes), (also, more, same, count) = lhs.shape, rhs.shape
    need_equal(groups, also, f"{groups} groups of lhs, {also} of rhs")
    need_equal(each, same, f"{each} channels of lhs, {same} of rhs")
    taps = Taps.of(attrs)
    _need_taps(taps, count)
    _need_room(taps, sizes, (height, width))
    return TensorType((batch, groups, more, height, width), lhs.dtype)


def _grad_types(lhs: TensorType, ct: TensorType, **attrs: Ints) -> TensorType:
    _same(lhs, ct)
    need(lhs.rank == 5 and ct.rank == 5, "takes lhs [N, G, E, H, W] and ct [N, G, M, height, width]")
    (batch, groups, each, *sizes), (also, same, more, *results) = lhs.shape, ct.shape
    need_equal(batch, also, f"{batch} rows of lhs, {also} of ct")
    need_equal(groups, same, f"{groups} groups of lhs, {same} of ct")
    taps = Taps.of(attrs)
    _need_taps(taps, len(taps.rows))
    _need_room(taps, sizes, results)
    return TensorType((groups, more, each, len(taps)), lhs.dtype)


def _seen(x: Array, taps: Taps, height: int, width: int) -> Callable[[int], Array]:
    """What a tap sees of x: [N,G,E,height,width]."""
    (down, right), (h, w) = taps.spacing, x.shape[3:]
    spread = np.zeros((*x.shape[:3], max(0, (h - 1) * down + 1), max(0, (w - 1) * right + 1)), x.dtype)
    spread[:, :, :, ::down, ::right] = x

    def places(count: int, by: int, first: int, size: int) -> tuple[Array, Array]:
        at = np.arange(count) * by + first
        return np.clip(at, 0, max(size - 1, 0)), (at >= 0) & (at < size)

    def seen(k: int) -> Array:
        rows, here = places(height, taps.strides[0], taps.rows[k] - taps.low[0], spread.shape[3])
        columns, there = places(width, taps.strides[1], taps.columns[k] - taps.low[1], spread.shape[4])
        if 0 in spread.shape:
            return np.zeros((*x.shape[:3], height, width), x.dtype)
        picked = spread[:, :, :, rows[:, None], columns]
        return np.where(here[:, None] & there, picked, np.zeros((), x.dtype))

    return seen


def _numpy(x: Array, w: Array, *, height: int, width: int, **attrs: Ints) -> Array:
    """One product per tap; two-byte floats are summed in float32."""
    taps = Taps.of(attrs)
    seen, ws = _seen(wide(x), taps, height, width), wide(w)
    out = np.zeros((*x.shape[:2], w.shape[1], height, width), ws.dtype)
    for k in range(len(taps)):
        out += np.einsum("ngehw,gme->ngmhw", seen(k), ws[..., k])
    return out.astype(x.dtype)


def _grad_numpy(x: Array, ct: Array, **attrs: Ints) -> Array:
    """Likewise."""
    taps, wanted = Taps.of(attrs), wide(ct)
    seen = _seen(wide(x), taps, *ct.shape[3:])
    parts = [np.einsum("ngehw,ngmhw->gme", seen(k), wanted) for k in range(len(taps))]
    return np.stack(parts, -1).astype(x.dtype)


def _vjp(node: Node, cts: Cts) -> Cts:
    (lhs, rhs), ct, taps = node.inputs, only(cts), Taps.of(node.attrs)
    return by_lhs(ct, rhs, taps, *lhs.shape[3:]), stencil_grad(lhs, ct, taps)


def _grad_vjp(node: Node, cts: Cts) -> Cts:
    """It is linear in both operands."""
    (lhs, ct), given, taps = node.inputs, only(cts), Taps.of(node.attrs)
    return by_lhs(ct, given, taps, *lhs.shape[3:]), stencil(lhs, given, taps, *ct.shape[3:])


STENCIL = define(
    "stencil", "lhs rhs", attrs={**ATTRS, "height": Attr("dim"), "width": Attr("dim")}, types=_types, numpy=_numpy,
    vjp=_vjp, traits=(Trait.batched,),
)  # fmt: skip

STENCIL_GRAD = define("stencil_grad", "lhs ct", attrs=ATTRS, types=_grad_types, numpy=_grad_numpy, vjp=_grad_vjp)


def stencil(lhs: Value, rhs: Value, taps: Taps, height: Dim, width: Dim) -> Value:
    """lhs [N,G,E,H,W] with rhs [G,M,E,K] -> [N,G,M,height,width]."""
    attrs: dict[str, Any] = {**taps.attrs, "height": height, "width": width}
    return make(STENCIL, lhs, rhs, **attrs).values[0]


def stencil_grad(lhs: Value, ct: Value, taps: Taps) -> Value:
    """The gradient of rhs, [G,M,E,K]: lhs [N,G,E,H,W] and the result's cotangent [N,G,M,height,width]."""
    attrs: dict[str, Any] = {**taps.attrs}
    return make(STENCIL_GRAD, lhs, ct, **attrs).values[0]


def by_lhs(ct: Value, rhs: Value, taps: Taps, height: Dim, width: Dim) -> Value:
    """The gradient of lhs, whose last axes are of these sizes."""
    return stencil(ct, transpose(rhs, (0, 2, 1, 3)), taps.turned((height, width), ct.shape[3:]), height, width)

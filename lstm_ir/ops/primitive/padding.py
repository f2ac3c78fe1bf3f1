"""`pad` with its modes: a number, the mirrored inside, the edge, or the other end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lstm_ir.ir import dims, options
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DimLike
from lstm_ir.ops.primitive.broadcast import as_values, broadcast_to
from lstm_ir.ops.primitive.shape import concat, reverse
from lstm_ir.ops.primitive.window import edges, slice_axis
from lstm_ir.ops.primitive.window import pad as pad_with_value

MODES = ("constant", "reflect", "edge", "wrap")


def pad(
    x: Any, low: Sequence[DimLike], high: Sequence[DimLike], interior: Sequence[int] | None = None, value: Any = 0,
    mode: str = "constant",
) -> Value:  # fmt: skip
    """x with `value` before, after and between its elements; a negative edge cuts off.

    mode: what stands before and after is `value` (constant), x mirrored without its edge (reflect), its edge (edge),
    or its other end (wrap), as in NumPy's `pad`, of no more elements than x has for that.
    """
    how = options.choice("pad", "mode", mode, MODES)
    if how == "constant":
        return pad_with_value(x, low, high, interior, value)
    (v,) = as_values("pad", x)
    lows, highs = edges(low, high)
    for option, given in (("low", lows), ("high", highs)):
        if len(given) != v.rank:
            raise options.refuse("pad", option, list(given), f"one for each of {v.rank} axes")
    if interior is not None and any(interior):
        raise options.refuse("pad", "interior", interior, f"none in the mode {how}")
    for axis in range(v.rank):
        v = _padded(v, axis, lows[axis], highs[axis], how)
    return v


def _padded(x: Value, axis: int, low: Dim, high: Dim, mode: str) -> Value:
    cut = [min(d, 0) if isinstance(d, int) else 0 for d in (low, high)]
    if any(cut):
        x = slice_axis(x, axis, -cut[0], dims.add(x.shape[axis], cut[1]))
    n = x.shape[axis]
    last = dims.add(n, -1)
    parts = [x]
    if not isinstance(low, int) or low > 0:
        bounds = {"reflect": (1, dims.add(low, 1)), "edge": (0, 1), "wrap": (_less(n, low), n)}
        parts.insert(0, _edge(x, axis, *bounds[mode], low, mode))
    if not isinstance(high, int) or high > 0:
        bounds = {"reflect": (_less(last, high), last), "edge": (last, n), "wrap": (0, high)}
        parts.append(_edge(x, axis, *bounds[mode], high, mode))
    return concat(parts, axis)


def _less(a: Dim, b: Dim) -> Dim:
    return dims.add(a, dims.mul(b, -1))


def _edge(x: Value, axis: int, start: Dim, end: Dim, count: Dim, mode: str) -> Value:
    part = slice_axis(x, axis, start, end)
    if mode == "reflect":
        return reverse(part, axis)
    if mode == "edge":
        return broadcast_to(part, part.type.resized(axis, count).shape)
    return part

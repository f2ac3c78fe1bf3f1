"""Padding so that a window with a stride gives size / stride places, rounded up: also over a size that a call knows."""

from __future__ import annotations

from collections.abc import Sequence

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import IRError
from lstm_ir.ir.graph import Value
from lstm_ir.ops.primitive.window import pad

Edge = tuple[Dim, Dim]  # places before and after, of one axis
WIDEST = 2**8  # of windows narrower than their stride, over an open size: its padding is a sum of as many terms


def same_total(size: Dim, width: int, stride: int) -> Dim:
    """Places before and after together: max(0, (ceil(size / stride) - 1) stride + width - size).

    Over an open size: with r = -size mod stride that is width - stride + r where the window covers its stride, else
    the number of k in stride - width < k < stride with k <= r, each (r + stride - k) // stride.
    """
    if stride == 1:
        return width - 1
    if isinstance(size, int):
        return max(0, (-(-size // stride) - 1) * stride + width - size)
    up = dims.mul(dims.floordiv(dims.add(size, stride - 1), stride), stride)
    left = dims.add(up, dims.mul(size, -1))
    if width >= stride:
        return dims.add(left, width - stride)
    if width > WIDEST:
        raise IRError(f"padding 'same' of a window of {width} places, each {stride}th place, over the open size {size}")
    found: Dim = 0
    for k in range(stride - width + 1, stride):
        found = dims.add(found, dims.floordiv(dims.add(left, stride - k), stride))
    return found


def same_edges(size: Dim, width: int, stride: int, upper: bool = True) -> Edge:
    """Before and after; of an odd number the larger part stands after where `upper`."""
    total = same_total(size, width, stride)
    less = dims.floordiv(total, 2)
    more = dims.add(total, dims.mul(less, -1))
    return (less, more) if upper else (more, less)


def padded(x: Value, edges: Sequence[Edge], value: float) -> tuple[Value, list[tuple[int, int]]]:
    """x, whose last axes have these edges, and what a window op has to pad itself: x has those that a call knows."""
    given = [(low, high) if isinstance(low, int) and isinstance(high, int) else (0, 0) for low, high in edges]
    around = [(0, 0) if isinstance(low, int) and isinstance(high, int) else (low, high) for low, high in edges]
    if all(edge == (0, 0) for edge in around):
        return x, given
    front = [0] * (x.rank - len(edges))
    return pad(x, [*front, *(e[0] for e in around)], [*front, *(e[1] for e in around)], value=value), given

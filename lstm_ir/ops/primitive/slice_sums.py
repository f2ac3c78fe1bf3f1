"""The gradient of a value that is read in slices: one concatenation instead of a sum of pads."""

from __future__ import annotations

from collections.abc import Sequence

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.opdef import JointVjp
from lstm_ir.ops.primitive.fill import zeros
from lstm_ir.ops.primitive.shape import concat


def _axis(node: Node) -> int | None:
    """The one axis that a slice cuts, at numbers and without a stride; None for another slice."""
    if set(node.attrs["strides"]) - {1}:
        return None
    (v,) = node.inputs
    bounds = zip(node.attrs["start_indices"], node.attrs["limit_indices"], v.shape, strict=True)
    cut = [(i, (lo, hi, size)) for i, (lo, hi, size) in enumerate(bounds) if lo != 0 or hi != size]
    if len(cut) != 1 or not all(isinstance(d, int) for d in cut[0][1]):
        return None
    return cut[0][0]


def _joined(v: Value, slices: Sequence[tuple[Node, Value]]) -> Value | None:
    """The gradient of v from (slice of v, its cotangent) pairs; None unless they lie apart on one
    axis."""
    axes = {_axis(n) for n, _ in slices}
    axis = axes.pop()
    if axes or axis is None:
        return None
    parts: list[Value] = []
    at = 0
    for lo, hi, ct in sorted(((*_bounds(n, axis), ct) for n, ct in slices), key=lambda s: s[:2]):
        if lo < at or hi == lo:
            return None
        parts += _gap(v, axis, lo - at)
        parts.append(ct)
        at = hi
    size = v.shape[axis]
    assert isinstance(size, int)
    parts += _gap(v, axis, size - at)
    return concat(parts, axis)


def _bounds(n: Node, axis: int) -> tuple[int, int]:
    lo, hi = n.attrs["start_indices"][axis], n.attrs["limit_indices"][axis]
    assert isinstance(lo, int)
    assert isinstance(hi, int)
    return lo, hi


def _gap(v: Value, axis: int, width: int) -> list[Value]:
    shape: list[Dim] = list(v.shape)
    shape[axis] = width
    return [zeros(shape, v.dtype)] if width else []


SLICE_SUMS = JointVjp(lambda node: _axis(node) is not None, _joined)

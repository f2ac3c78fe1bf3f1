"""Adaptive pools: as many windows as are asked for, whatever the size."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.refusals import RefusedError
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ops.primitive.window import slice_axis


def adapted(x: Value, axis: int, m: Dim, largest: bool) -> Value:
    """The mean, or the largest, of m windows along an axis of n: from floor(i n / m) to ceil((i + 1) n / m).

    RefusedError where n is open, and m not 1.
    """
    n = x.shape[axis]
    reduce = li.max if largest else li.mean
    if n == m:
        return x
    if m == 1:
        return reduce(x, axis, keepdims=True)
    if not isinstance(n, int) or not isinstance(m, int):
        raise RefusedError(f"{m} windows over the open size {n}")
    bounds = [((i * n) // m, -((-(i + 1) * n) // m)) for i in range(m)]
    return li.concat([reduce(slice_axis(x, axis, a, b), axis, keepdims=True) for a, b in bounds], axis)

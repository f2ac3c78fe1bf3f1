"""Adaptive pools: as many windows as are asked for, whatever the size."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ops.core.adaptive_pool import along


def adapted(x: Value, axis: int, m: Dim, largest: bool) -> Value:
    """The mean, or the largest, of m windows along an axis of n: from floor(i n / m) to ceil((i + 1) n / m).

    RefusedError where n is open, and m not 1.
    """
    n = x.shape[axis]
    if n not in (m, 1) and m != 1 and not (isinstance(n, int) and isinstance(m, int)):
        raise NodeRefusedError(f"{m} windows over the open size {n}")
    return along("adaptive pool", x, axis, m, li.max if largest else li.mean)

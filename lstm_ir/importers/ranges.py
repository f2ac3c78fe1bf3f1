"""Range of ONNX and of TensorFlow: start, start + delta, ... before limit."""

from __future__ import annotations

import math
from typing import Any

from lstm_ir.importers.operands import Operands
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import UndecidedError, larger, minus
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.types import DType

NAMES = ("start", "limit", "delta")


def range_of(c: Operands, dtype: DType) -> tuple[Any, Any, Dim]:
    """Start, delta, and how many numbers there are, by operands 0 to 2, which have to be known or sizes."""
    if dtype.is_float:
        return _of_floats(c)
    start, delta = (c.dim(i, NAMES[i]) for i in (0, 2))
    upward = isinstance(start, int) and isinstance(delta, int) and start >= 0 and delta > 0
    limit = (c.axis_size if upward else c.dim)(1, NAMES[1])  # none stand below 0 then
    return start, delta, _count(start, limit, delta)


def _of_floats(c: Operands) -> tuple[float, float, int]:
    start, limit, delta = (float(c.number(i, what)) for i, what in enumerate(NAMES))
    if delta == 0:
        raise NodeRefusedError("delta is 0")
    steps = (limit - start) / delta
    if not all(map(math.isfinite, (start, limit, delta, steps))):
        raise NodeRefusedError(f"start is {start}, limit {limit}, delta {delta}: it has no number of elements")
    return start, delta, max(0, math.ceil(steps))


def _count(start: Dim, limit: Dim, delta: Dim) -> Dim:
    """At least 0."""
    if not isinstance(delta, int) or delta == 0:
        raise NodeRefusedError(f"delta is {delta}")
    way = minus(limit, start) if delta > 0 else minus(start, limit)
    count = dims.floordiv(dims.add(way, abs(delta) - 1), abs(delta))
    try:
        return larger(count, 0)
    except UndecidedError:
        return count  # a call at which it is negative is refused

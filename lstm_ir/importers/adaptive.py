"""Adaptive pools: as many windows as are asked for, whatever the size."""

from __future__ import annotations

from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.core.adaptive_pool import along


def adapted(x: Value, axis: int, m: Dim, largest: bool) -> Value:
    """The mean, or the largest, of m windows along an axis of n: from floor(i n / m) to ceil((i + 1) n / m).

    Of equal ones the gradient goes to the first, as it does in every pool. RefusedError where n is open, and m not 1.
    """
    n = x.shape[axis]
    if n not in (m, 1) and m != 1 and not (isinstance(n, int) and isinstance(m, int)):
        raise NodeRefusedError(f"{m} windows over the open size {n}")
    return along("adaptive pool", x, axis, m, _first_largest if largest else li.mean)


def _first_largest(x: Value, axis: int, keepdims: bool = False) -> Value:
    def forward(v: Value) -> Any:
        return li.max(v, axis, keepdims=keepdims), v

    def backward(v: Value, ct: Value) -> Value:
        here = li.equal(
            li.iota(v.shape, axis, DType.i32), li.convert(li.expand_dims(li.argmax(v, axis), axis), DType.i32)
        )
        return li.select(here, ct if keepdims else li.expand_dims(ct, axis), 0.0)

    if not x.dtype.is_float:
        return li.max(x, axis, keepdims=keepdims)
    found: Value = li.custom_vjp(forward, backward)(x)
    return found

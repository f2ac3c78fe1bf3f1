"""Ops whose result has the elements of their operands, at other places or as another type."""

from __future__ import annotations

from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType

MOVES = ("slice", "concatenate", "broadcast_in_dim", "reshape", "transpose", "reverse", "convert")


def stored_narrow(v: Value) -> bool:
    """A weight in fewer bits, widened where it is read."""
    if v.op != "convert" or v.node.inputs[0].dtype.bits >= v.dtype.bits:
        return False
    return v.dtype.is_float or (v.dtype is DType.i32 and v.node.inputs[0].dtype is DType.i8)

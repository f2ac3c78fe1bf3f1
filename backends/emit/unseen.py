"""Numbers that neither IREE nor a driver sees, so that nothing is concluded from them."""

from __future__ import annotations

import numpy as np
from iree.compiler import ir

from lstm_ir.backends.emit.builder import Builder
from lstm_ir.ir.graph import Value
from lstm_ir.ir.literals import splat
from lstm_ir.ir.types import TensorType


def unseen(e: Builder, number: float, t: TensorType) -> ir.Value:
    """A tensor of one number, which lies in memory."""
    key = t.dtype, repr(number)  # -0.0 is not 0.0
    if key not in e.unseen:
        with ir.InsertionPoint(e.anchor):
            e.unseen[key] = e.hidden(e.constant(np.asarray(number), t.dtype))
    return e.broadcast(e.unseen[key], TensorType((), t.dtype), t, ())


def without_zero(e: Builder, v: ir.Value, operand: Value, t: TensorType) -> ir.Value:
    """`v`, a factor or divisor of type t made from `operand`; a literal 0 for Vulkan lies in memory.

    Its drivers may take 0 x for 0, though x is NaN or infinite, and x / 0 for any number: Mesa's does.
    """
    if not e.is_spirv or not t.dtype.is_float:
        return v
    number = splat(operand)
    return unseen(e, number, t) if number == 0 else v

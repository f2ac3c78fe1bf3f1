"""Lowering of convert: float to integer truncates and saturates, NaN gives 0."""

from __future__ import annotations

import numpy as np
from iree.compiler import ir

from lstm_ir.backends.emit.arithmetic import Calc
from lstm_ir.backends.emit.emitter import Emitter, lower
from lstm_ir.backends.emit.mlir_types import SIGNED
from lstm_ir.backends.lower.elementwise import compute_type
from lstm_ir.ir.graph import Node
from lstm_ir.ir.types import DType, TensorType


@lower("convert")
def _convert(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    t, to = n.inputs[0].type, n.types[0]
    if to.dtype is DType.i1:
        return Calc(e, t).compare("NE", x, 0) if t.dtype is not DType.i1 else x
    if t.dtype.is_float and not to.dtype.is_float:
        wide = compute_type(t)
        return _saturated(e, e.convert(x, t, wide.dtype), wide, to)
    unfit = to.dtype in (DType.f16, DType.f64) or to.dtype in SIGNED
    of_host = t.dtype not in SIGNED and (to.dtype is DType.f16 or not t.dtype.is_float)
    if not t.rank and unfit and of_host and e.target is not None:
        # IREE computes a single integer, as the number of a step, on the host, also by way of f32. That
        # has no f16, no f64 and no unsigned arithmetic
        x = e.hidden(x)
    return e.convert(x, t, to.dtype)


def _saturated(e: Emitter, x: ir.Value, t: TensorType, to: TensorType) -> ir.Value:
    """Only values whose integer part fits reach the conversion: others are undefined in LLVM."""
    c, i = Calc(e, t), Calc(e, to)
    info = np.iinfo(to.dtype.numpy)
    over, under = float(info.max) + 1, float(info.min) - 1  # exact, or rounded onto the bound
    high, low = c.compare("GE", x, over), c.compare("LE", x, under)
    fits = c.both(c.compare("LT", x, over), c.compare("GT", x, under))
    inside = e.convert(c.pick(fits, x, 0), t, to.dtype)
    return i.pick(high, int(info.max), i.pick(low, int(info.min), inside))

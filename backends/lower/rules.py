"""All lowering rules: importing this module fills the table."""

from lstm_ir.backends.emit.emitter import RULES
from lstm_ir.backends.lower import (
    convert,
    elementwise,
    erf,
    gather,
    integer,
    linear,
    math,
    reduce,
    scan,
    shape,
    stencil,
    window,
)  # fmt: skip

__all__ = [
    "RULES", "convert", "elementwise", "erf", "gather", "integer", "linear", "math", "reduce",
    "scan", "shape", "stencil", "window",
]  # fmt: skip

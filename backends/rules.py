"""All lowering rules: importing this module fills the table."""

from lstm_ir.backends import (
    lower_convert,
    lower_elementwise,
    lower_erf,
    lower_gather,
    lower_integer,
    lower_linear,
    lower_math,
    lower_reduce,
    lower_scan,
    lower_shape,
    lower_window,
)
from lstm_ir.backends.emitter import RULES

__all__ = [
    "RULES", "lower_convert", "lower_elementwise", "lower_erf", "lower_gather",
    "lower_integer", "lower_linear", "lower_math", "lower_reduce", "lower_scan",
    "lower_shape", "lower_window",
]  # fmt: skip

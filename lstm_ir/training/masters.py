"""Masters: weights that are trained in f32, and read in fewer bits.

    w  ->  convert(convert(w, bf16), f32)

The gradient with respect to the rounded weights is taken for that of the masters, which small updates still change:
Micikevicius et al., Mixed Precision Training, 2018.
"""

from __future__ import annotations

from lstm_ir.ir.errors import GradientError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.elementwise import convert

ROUNDED = ("bf16", "f16")


def rounded(master: Value, precision: str | None) -> Value:
    """An f32 weight with two axes or more as the entries read it; others as they are."""
    if precision is None or master.dtype is not DType.f32 or master.rank < 2:
        return master
    return convert(convert(master, precision), DType.f32)


def check_precision(precision: str | None) -> None:
    """GradientError for a word that is none."""
    if precision is not None and precision not in ROUNDED:
        raise GradientError(
            f"train_step: precision is {precision!r:.80}; expected one of {', '.join(ROUNDED)}, or None"
        )

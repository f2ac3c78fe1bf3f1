"""Numbers as conditions, as every library takes them."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType


def truth_of(v: Value) -> Value:
    """Whether each element is true: a number is that is not 0."""
    return v if v.dtype is DType.i1 else li.not_equal(v, 0)

"""Branches of which only a call knows which one runs: both are computed, and one is chosen.

A library runs one branch alone, and so no gradient comes out of the other. Here it is computed too, and its slopes may
be infinite or NaN where the condition kept it away from them (a root of what may be negative): 0 times them is NaN.
"""

from __future__ import annotations

from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.complex_numbers import Complex
from lstm_ir.importers.lists import TensorList
from lstm_ir.ir.graph import Value


def entering(v: Any, holds: Value) -> Any:
    """v as a branch reads it that runs where `holds`, i1[], is true: elsewhere its gradient is 0, whatever it was.

    A list and complex numbers enter part by part. A list that a loop around the branch writes holds nothing that a
    branch could read: it enters as it is, as all does that is no value of a graph.
    """
    if isinstance(v, Complex | TensorList):
        return v.each(lambda part: entering(part, holds))
    if not isinstance(v, Value) or not v.dtype.is_float or v.op == "constant":
        return v
    return li.select(holds, v, li.stop_gradient(v))

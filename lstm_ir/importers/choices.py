"""Branches of which only a call knows which one runs: both are computed, and one is chosen.

A library runs one branch alone, and so no gradient comes out of the other. Here it is computed too, and its slopes may
be infinite or NaN where the condition kept it away from them (a root of what may be negative): 0 times them is NaN.
"""

from __future__ import annotations

from typing import Any

from lstm_ir import ops as li
from lstm_ir.ir.graph import Value


def entering(v: Any, holds: Value) -> Any:
    """v as a branch reads it that runs where `holds`, i1[], is true: elsewhere its gradient is 0, whatever it was.

    What is no value of a graph, as a list, enters as it is.
    """
    if not isinstance(v, Value) or not v.dtype.is_float or v.op == "constant":
        return v
    return li.select(holds, v, li.stop_gradient(v))

"""The larger and the smaller of two tensors, where a library gives the whole gradient to the first of equal ones.

`li.maximum` and `li.minimum` give half of it to each.
"""

from __future__ import annotations

import numpy as np

from lstm_ir import ops as li
from lstm_ir.ir.graph import Value


def larger(x: Value, y: Value) -> Value:
    """The larger; NaN where one of both is NaN."""
    return li.where(_or_nan(li.less(x, y), y), y, x) if x.dtype.is_float else li.maximum(x, y)


def smaller(x: Value, y: Value) -> Value:
    """The smaller; NaN where one of both is NaN."""
    return li.where(_or_nan(li.greater(x, y), y), y, x) if x.dtype.is_float else li.minimum(x, y)


def _or_nan(chosen: Value, y: Value) -> Value:
    """Where y is chosen, and where it is NaN, which no comparison chooses."""
    if y.op == "constant" and not np.isnan(y.node.attrs["value"].array.astype(np.float64)).any():
        return chosen
    return li.logical_or(chosen, li.not_equal(y, y))

"""The larger and the smaller of two tensors, where a library gives the whole gradient to the first of equal ones.

`li.maximum` and `li.minimum` give half of it to each.
"""

from __future__ import annotations

import numpy as np

from lstm_ir import ops as li
from lstm_ir.ir.graph import Value
from lstm_ir.ir.literals import splat


def larger(x: Value, y: Value) -> Value:
    """The larger; NaN where one of both is NaN."""
    if not x.dtype.is_float:
        return li.maximum(x, y)
    if _known(x):
        return li.where(li.greater_equal(x, y), x, y)
    return li.where(_or_nan(li.less(x, y), y), y, x)


def smaller(x: Value, y: Value) -> Value:
    """The smaller; NaN where one of both is NaN."""
    if not x.dtype.is_float:
        return li.minimum(x, y)
    if _known(x):
        return li.where(li.less_equal(x, y), x, y)
    return li.where(_or_nan(li.greater(x, y), y), y, x)


def _or_nan(chosen: Value, y: Value) -> Value:
    """Where y is chosen, and where it is NaN, which no comparison chooses."""
    return chosen if _known(y) else li.logical_or(chosen, li.not_equal(y, y))


def _known(v: Value) -> bool:
    """Whether these are numbers, of which none is NaN."""
    if v.op == "constant":
        return not np.isnan(v.node.attrs["value"].array.astype(np.float64)).any()
    number = splat(v)
    return number is not None and not np.isnan(np.float64(number))

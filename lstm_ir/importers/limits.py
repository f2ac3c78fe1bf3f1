"""The larger and the smaller of two tensors, where a library gives the whole gradient to the first of equal ones.

`li.maximum` and `li.minimum` give half of it to each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lstm_ir import ops as li
from lstm_ir.ir.graph import Value
from lstm_ir.ir.literals import splat

Compare = Callable[[Any, Any], Value]


def larger(x: Value, y: Value) -> Value:
    """The larger; NaN where one of both is NaN."""
    return _first_of_equals(x, y, li.greater_equal, li.less) if x.dtype.is_float else li.maximum(x, y)


def smaller(x: Value, y: Value) -> Value:
    """The smaller; NaN where one of both is NaN."""
    return _first_of_equals(x, y, li.less_equal, li.greater) if x.dtype.is_float else li.minimum(x, y)


def _first_of_equals(x: Value, y: Value, stays: Compare, yields: Compare) -> Value:
    """x where it stays, y where x yields to it, and where one of both is NaN, which no comparison chooses, NaN."""
    if _known(x):
        return li.where(stays(x, y), x, y)
    chosen = yields(x, y)
    return li.where(chosen if _known(y) else li.logical_or(chosen, li.not_equal(y, y)), y, x)


def _known(v: Value) -> bool:
    """Whether these are numbers, of which none is NaN."""
    if v.op == "constant":
        return not np.isnan(v.node.attrs["value"].array.astype(np.float64)).any()
    number = splat(v)
    return number is not None and not np.isnan(np.float64(number))

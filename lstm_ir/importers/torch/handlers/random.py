"""Dropout, which stays in a module in training mode; other random numbers are refused by having no entry."""

from __future__ import annotations

from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.torch.call import Call
from lstm_ir.importers.torch.table import taken
from lstm_ir.ir.graph import Value


def dropped(c: Call, x: Value, rate: float) -> Value:
    """x with a share of its elements as 0, the others larger."""
    if rate == 1.0:
        return li.zeros_like(x)
    return li.dropout(x, rate, c.context.key(), training=True)


@taken("aten.dropout.default", "aten.native_dropout.default", rows=True, refused="the mask as a result")
def dropout(c: Call) -> Any:
    """Elements dropped in training; the same tensor otherwise."""
    x, rate = c.tensor("input"), c.real("p")
    y = dropped(c, x, rate) if c.flag("train") and rate > 0 else x
    return [y, None] if c.name.startswith("aten.native") else y


@taken("aten.feature_dropout.default")
def feature_dropout(c: Call) -> Value:
    """Whole channels [N,C] of x [N,C,...] dropped in training."""
    x, rate = c.tensor("input"), c.real("p")
    if not (c.flag("train") and rate > 0):
        return x
    if x.rank < 2:
        raise NodeRefusedError(f"the operand is {x.type}, without channels")
    ones = li.ones((*x.shape[:2], *(1,) * (x.rank - 2)), x.dtype)
    return x * dropped(c, ones, rate)

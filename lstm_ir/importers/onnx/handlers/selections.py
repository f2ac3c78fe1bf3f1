"""Ops that choose by where an element stands, or by what kind of number it is."""

from __future__ import annotations

import math

from lstm_ir import ops as li
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.handlers.shapes import flattened
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.along_axis import from_start
from lstm_ir.ops.primitive.window import slice_axis


@taken("Trilu", 14)
def trilu(c: Call) -> Value:
    """The elements on and above the k-th diagonal of the last two axes, or on and below it; 0 elsewhere."""
    x, k = c.value(0), c.dim(1, "k") if c.has(1) else 0
    if x.rank < 2:
        raise NodeRefusedError(f"the operand is {x.type}, without two axes")
    return (li.triu if c.flag("upper", True) else li.tril)(x, k)


@taken("IsNaN", 9, 13, 20)
def is_nan(c: Call) -> Value:
    """Whether an element is no number."""
    return li.is_nan(c.value(0))


@taken("IsInf", 10, 20)
def is_inf(c: Call) -> Value:
    """Whether an element is infinite, of the signs that are asked for."""
    return li.is_inf(c.value(0), c.flag("detect_positive", True), c.flag("detect_negative", True))


@taken("OneHot", 9, 11, 28, refused="a depth that only a call knows, apart from sizes")
def one_hot(c: Call) -> Value:
    """A new axis of `depth` places: the second of two values where the index stands, the first elsewhere.

    An index below 0 counts from the end; one outside stands nowhere.
    """
    indices, values = c.value(0), c.value(2)
    depth = _depth(c)
    if values.shape != (2,):
        raise NodeRefusedError(f"values are {values.type}, not two")
    axis = c.axis(indices.rank + 1, -1)
    indices = li.convert(indices, DType.i64)
    indices = from_start(indices, depth)
    off, on = (li.squeeze(slice_axis(values, 0, i, i + 1), 0) for i in (0, 1))
    return li.where(li.one_hot(indices, depth, axis=axis, dtype=DType.i1), on, off)


def _depth(c: Call) -> Dim:
    """The number of places, which may be stated as a float."""
    if not c.raw(1).dtype.is_float:
        return c.dim(1, "the depth")
    if c.known(1) is None:
        raise NodeRefusedError("the depth depends on values that only a call knows")
    given = c.number(1, "the depth")
    if not math.isfinite(given):
        raise NodeRefusedError(f"the depth is {given}")
    return int(given)


@taken("Hardmax", 1, 11, 13)
def hardmax(c: Call) -> Value:
    """1 where the first of the largest stands along `axis`, 0 elsewhere."""
    x = c.value(0)
    if c.opset >= 13:
        return li.hardmax(x, c.axis(x.rank, -1))
    # Until operator set 12 all axes from `axis` on are one.
    return li.reshape(li.hardmax(flattened(x, c.axis(x.rank, 1)), 1), x.shape)

"""Ops that make tensors from attributes and sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir import ops as li
from lstm_ir.importers import sizes as s
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.narrow import LIMITS, Narrow, name_of
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.onnx.tensors import literal, read_tensor
from lstm_ir.importers.ranges import range_of
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType


@taken("Constant", 1, 9, 11, 12, 13, 19, 21, 23, 24, 25, refused="text and sparse tensors")
def constant(c: Call) -> Any:
    """The literal that an attribute holds."""
    if c.has_attribute("value"):
        return literal(c.tensor("value"))
    readers: dict[str, tuple[Any, Any]] = {
        "value_float": (c.real, np.float32), "value_floats": (c.reals, np.float32),
        "value_int": (c.integer, np.int64), "value_ints": (c.integers, np.int64),
    }  # fmt: skip
    for name, (read, dtype) in readers.items():
        if c.has_attribute(name):
            return li.constant(np.array(read(name), dtype))
    raise NodeRefusedError("its value is not a tensor and not numbers")


@taken("ConstantOfShape", 9, 20, 21, 23, 24, 25)
def constant_of_shape(c: Call) -> Any:
    """One number in a shape."""
    shape = tuple(c.axis_sizes(0, "the shape"))
    fill, kind = np.zeros(1, np.float32), ""
    if c.has_attribute("value"):
        tensor = c.tensor("value")
        fill, kind = read_tensor(tensor).array, name_of(tensor.dtype)
    if fill.size != 1:
        raise NodeRefusedError(f"its value has {fill.size} elements, not one")
    wide = li.broadcast_to(li.constant(fill.reshape(())), shape)
    return Narrow(wide, kind) if kind in LIMITS else wide


@taken("Range", 11, 27, refused="bounds that only a call knows, apart from sizes")
def arange(c: Call) -> Value:
    """start, start + delta, ... before limit."""
    dtype = c.value(0).dtype
    start, delta, count = range_of(c, dtype)
    if c.has_attribute("stash_type") and c.integer("stash_type") != 1:
        raise NodeRefusedError("stash_type is not 1, f32")
    inside = dtype.compute_dtype
    steps = li.iota((count,), 0, inside)
    first = li.convert(li.size(start), inside) if isinstance(start, dims.Expr) else li.constant(start, inside)
    return li.convert(steps * li.constant(delta, inside) + first, dtype)


@taken("Shape", 1, 13, 15, 19, 21, 23, 24, 25)
def shape(c: Call) -> s.SizeArray | Value:
    """The sizes of the operand, from axis `start` up to `end`."""
    x = c.raw(0)
    sizes = list(x.array.shape if isinstance(x, s.SizeArray) else x.shape)
    start = c.integer("start", 0) if c.opset >= 15 else 0
    end = c.integer("end", len(sizes)) if c.opset >= 15 else len(sizes)
    found = sizes[start:end]
    return s.folded(s.objects(found, (len(found),)), DType.i64)


@taken("Size", 1, 13, 19, 21, 23, 24, 25)
def size(c: Call) -> s.SizeArray | Value:
    """How many elements the operand has."""
    x = c.raw(0)
    sizes = x.array.shape if isinstance(x, s.SizeArray) else x.shape
    return s.folded(s.objects([dims.product(tuple(sizes))], ()), DType.i64)

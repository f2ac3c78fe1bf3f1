"""Ops that make tensors of numbers, of sizes that may be open."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.torch.call import Call, as_value
from lstm_ir.importers.torch.table import taken
from lstm_ir.ir.dims import Expr
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType

_SIZES = ("size", "dtype", "self", "n", "m")


def _filled(names: tuple[str, ...], number: Callable[[Call], Any]) -> None:
    @taken(*names, rows=True)
    def build(c: Call) -> Value:
        for name in _SIZES:
            c.any(name)
        found = as_value(number(c), c.dtype, "fill_value")
        return li.broadcast_to(found, c.shape)


def _same(number: int, _: Call) -> int:
    return number


for _name, _number in (("zeros", 0), ("ones", 1)):
    _names = f"aten.{_name}.default", f"aten.{_name}_like.default", f"aten.new_{_name}.default"
    _filled(_names, partial(_same, _number))
_filled(("aten.full.default", "aten.full_like.default", "aten.new_full.default"), lambda c: c.any("fill_value"))
_filled(("aten.fill.Scalar", "aten.fill.Tensor"), lambda c: c.any("value"))
_filled(("aten.scalar_tensor.default",), lambda c: c.any("s"))


@taken("aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default",
       refused="all, unless every element is written")  # fmt: skip
def empty(c: Call) -> Value:
    """Nothing is known of the elements; zeros are as good as any."""
    for name in _SIZES:
        c.any(name)
    return li.zeros(c.shape, c.dtype)


@taken(
    "aten.arange.default", "aten.arange.start", "aten.arange.start_step", refused="a step that is a size; open floats"
)
def arange(c: Call) -> Value:
    """Numbers from a start, one step after the other, as many as PyTorch says."""
    c.any("dtype"), c.any("end")
    start, step = c.any("start", 0), c.any("step", 1)
    (count,) = c.shape
    if isinstance(step, Expr) or isinstance(start, Value) or isinstance(step, Value):
        raise NodeRefusedError("a start that is computed, or a step that is a size, is not taken")
    if c.dtype.is_float and isinstance(count, int) and isinstance(start, (int, float)):
        return li.constant((start + step * np.arange(count, dtype=np.float64)).astype(c.dtype.numpy))
    at = li.convert(li.iota((count,), 0), c.dtype)
    at = at if step == 1 else at * as_value(step, c.dtype)
    return at if start == 0 else at + as_value(start, c.dtype)


@taken("aten.eye.default", "aten.eye.m")
def eye(c: Call) -> Value:
    """Ones on the diagonal."""
    for name in _SIZES:
        c.any(name)
    rows, columns = c.shape
    return li.eye(rows, columns, dtype=c.dtype)


def _triangle(name: str, function: Callable[..., Value]) -> None:
    @taken(f"aten.{name}.default")
    def build(c: Call) -> Value:
        x, k = c.tensor("self"), c.size("diagonal", 0)
        if x.dtype is not DType.i1:
            return function(x, k)
        return li.greater(function(li.convert(x, DType.i32), k), 0)


_triangle("tril", li.tril)
_triangle("triu", li.triu)


@taken("aten.one_hot.default", refused="a number of classes that only a call knows")
def one_hot(c: Call) -> Value:
    """1 at the place of each index, 0 elsewhere."""
    x, classes = c.tensor("self"), c.size("num_classes", -1)
    if classes == -1:
        raise NodeRefusedError("num_classes is not given: it depends on the call")
    return li.one_hot(x, classes, dtype=c.dtype)

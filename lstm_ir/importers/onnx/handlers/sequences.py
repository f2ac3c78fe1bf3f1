"""Sequences: lists of tensors, which exist at import alone. One that a loop makes longer is what its steps stack."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np

from lstm_ir import ops as li
from lstm_ir.importers.lists import LoopList, TensorList, need_few
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.onnx.tensors import dtype_of
from lstm_ir.importers.operands import Result
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import folded
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType

F32 = 1  # ONNX's number of the element type


@taken("SequenceEmpty", 11)
def empty(c: Call) -> Any:
    """No element yet."""
    return TensorList(dtype_of(c.integer("dtype", F32)), 0, grows=True)


@taken("SequenceConstruct", 11)
def construct(c: Call) -> Any:
    """These tensors."""
    return _of(c.values())


@taken("SequenceInsert", 11, refused="in a loop, places other than the end, and two in one step")
def insert(c: Call) -> Any:
    """One element more, at the end or before a place that is known."""
    before, value = c.sequence(0), c.value(1)
    if isinstance(before, LoopList):
        if before.write is not None:
            raise NodeRefusedError("a step of the loop inserts two elements into one sequence")
        if c.has(2):
            raise NodeRefusedError("a step of the loop inserts at a place")
        return replace(before, write=(None, value))
    items = _items(before)
    place = int(c.number(2, "the place")) if c.has(2) else len(items)
    if not -len(items) <= place <= len(items):
        raise NodeRefusedError(f"place {place} is outside a sequence of {len(items)}")
    items.insert(place, value)
    return _of(items)


@taken("SequenceErase", 11, refused="a place that only a call knows")
def erase(c: Call) -> Any:
    """One element less: that at a place, or the last."""
    items = _items(_whole(c))
    place = int(c.number(1, "the place")) if c.has(1) else -1
    if not -len(items) <= place < len(items):
        raise NodeRefusedError(f"place {place} is outside a sequence of {len(items)}")
    del items[place]
    return _of(items)


@taken("SequenceAt", 11, refused="a place that only a call knows, of elements that are no rows of one tensor")
def at(c: Call) -> Value:
    """The element at a place, counted from either end."""
    found, place = _whole(c), c.known(1)
    if found.rows is None:
        if place is None:
            raise c.unknown(1, "the place")
        items, number = _items(found), int(place.reshape(-1)[0])
        if not -len(items) <= number < len(items):
            raise NodeRefusedError(f"place {number} is outside a sequence of {len(items)}")
        return items[number]
    wanted = li.convert(li.reshape(c.value(1), ()), DType.i64)
    from_end = wanted + li.convert(li.size(found.count), DType.i64)
    return li.take(found.rows, li.select(li.less(wanted, 0), from_end, wanted), 0)


@taken("SequenceLength", 11)
def length(c: Call) -> Result:
    """How many elements there are."""
    return folded(np.array(_whole(c).count, object), DType.i64)


@taken("ConcatFromSequence", 11)
def concat_from_sequence(c: Call) -> Value:
    """All elements one after another along an axis, or along a new one."""
    found, new = _whole(c), c.flag("new_axis")
    if found.rows is None:
        items = _items(found)
        if not items:
            raise NodeRefusedError("the sequence has no elements")
        rank = items[0].rank
        axis = c.axis_of(c.integer("axis"), rank + new)
        return li.stack(items, axis) if new else li.concat(items, axis)
    rows = found.rows
    axis = c.axis_of(c.integer("axis"), rows.rank - 1 + new)
    others = [a for a in range(1, rows.rank)]
    moved = li.transpose(rows, (*others[:axis], 0, *others[axis:])) if axis else rows
    if new:
        return moved
    shape = list(moved.shape)
    shape[axis : axis + 2] = [dims.mul(shape[axis], shape[axis + 1])]
    return li.reshape(moved, shape)


@taken("SplitToSequence", 11, 24, refused="parts whose sizes only a call knows")
def split_to_sequence(c: Call) -> Any:
    """Parts of a tensor along an axis: each row, parts of one size, or parts of given sizes."""
    x, axis = c.value(0), c.axis_of(c.integer("axis", 0), c.value(0).rank)
    size = x.shape[axis]
    # The specification passes keepdims over where sizes are given; onnxruntime does not where these are one 1, and
    # PyTorch's exporter writes unbind so.
    keeps = c.flag("keepdims", True)
    if not c.has(1) or (c.value(1).rank == 0 and c.numbers(1, "the sizes of the parts") == [1]):
        rows = li.transpose(x, (axis, *(a for a in range(x.rank) if a != axis))) if axis else x
        return TensorList(x.dtype, size, rows=li.expand_dims(rows, axis + 1) if keeps else rows)
    parts = _parts(c, size)
    ends = list(accumulate(parts))
    return _of(li.split(x, ends[:-1], axis) if len(parts) > 1 else [x])


def _parts(c: Call, size: Dim) -> list[int]:
    numbers = c.numbers(1, "the sizes of the parts")
    if c.value(1).rank == 0:
        (each,) = numbers
        if each < 1 or not isinstance(size, int):
            raise NodeRefusedError(f"parts of {each} of the size {size}")
        need_few(-(-size // each))
        numbers = [each] * (size // each) + ([size % each] if size % each else [])
    need_few(len(numbers))
    if not numbers or min(numbers) < 0:
        raise NodeRefusedError(f"the sizes of the parts are {numbers}")
    c.agree("the sizes of the parts and the axis", size, sum(numbers))
    return numbers


def _whole(c: Call) -> TensorList:
    """Operand 0, which no loop is about to make longer."""
    found = c.sequence(0)
    if isinstance(found, LoopList):
        raise NodeRefusedError("a step of the loop reads a sequence that it makes longer")
    return found


def _of(items: list[Value]) -> TensorList:
    if not items:
        return TensorList(DType.f32, 0, grows=True)
    for v in items:
        if v.dtype is not items[0].dtype:
            raise NodeRefusedError(f"a sequence of {items[0].dtype} and {v.dtype}")
    return TensorList(items[0].dtype, len(items), items=dict(enumerate(items)), grows=True)


def _items(sequence: TensorList) -> list[Value]:
    """The elements one by one."""
    count = sequence.count
    if not isinstance(count, int):
        raise NodeRefusedError("the sequence has a number of elements that only a call knows")
    need_few(count)
    if sequence.rows is None:
        return [sequence.items[k] for k in range(count)]
    return [sequence.rows[k] for k in range(count)]

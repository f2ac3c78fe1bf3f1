"""TensorArrays of TensorFlow 1 and lists of tensors of TensorFlow 2: what loops read from and write to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers import sizes as s
from lstm_ir.importers.lists import LoopList, TensorList
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import SizeArray
from lstm_ir.importers.tensorflow.call import Call
from lstm_ir.importers.tensorflow.table import taken
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType

_PLACES = "places other than all of them in order"


def _written(c: Call, i: int) -> TensorList:
    """A list that is read: not one that the loop around writes."""
    found = c.things[i] if i < len(c.things) else None
    if isinstance(found, LoopList):
        raise NodeRefusedError("it reads a list that the loop around it writes")
    return c.thing(i, TensorList)


def _element(c: Call, i: int) -> tuple[int | None, ...] | None:
    """The shape of elements; None where it is not known."""
    known = c.known(i)
    if known is None or known.ndim != 1:
        return None
    return tuple(None if d < 0 else int(d) for d in known)


def _place(c: Call, i: int) -> Value:
    v = c.value(i)
    if v.rank:
        raise NodeRefusedError(f"the place is {v.type}, not one number")
    return v


def _put(c: Call, before: Any, place: Value, value: Value) -> TensorList | LoopList:
    if isinstance(before, LoopList):
        if before.write is not None:
            raise NodeRefusedError("a loop writes two elements of a list in one step")
        return replace(before, write=(place, value))
    if not isinstance(before, TensorList):
        raise NodeRefusedError("it writes to what is no list")
    known = c.elements_of(place)
    if known is None or not isinstance(known.item(), int) or known.item() < 0:
        raise NodeRefusedError("outside of loops the place that is written has to be known at import")
    return before.with_item(int(known.item()), value)


def _in_order(v: Value, count: Dim) -> bool:
    """Whether these are 0, 1, ... up to the count."""
    while v.op in ("convert", "reshape") and v.rank == 1:
        (v,) = v.node.inputs
    return v.op == "iota" and v.shape == (count,)


def _all_places(c: Call, i: int, count: Dim) -> bool:
    known = c.elements(i)
    return _in_order(c.value(i), count) if known is None else known.ndim == 1 and list(known) == list(range(len(known)))


# -- lists of TensorFlow 2


@taken("TensorListReserve")
def reserve(c: Call) -> TensorList:
    """A list of so many elements, none of them written."""
    return TensorList(c.dtype("element_dtype"), c.dim(1, "the number of elements"), _element(c, 0))


@taken("EmptyTensorList")
def empty(c: Call) -> TensorList:
    """A list without elements."""
    c.raw(1)
    return TensorList(c.dtype("element_dtype"), 0, _element(c, 0), grows=True)


@taken("TensorListFromTensor")
def from_tensor(c: Call) -> TensorList:
    """The rows of a tensor."""
    c.raw(1)
    x = c.value(0)
    if not x.rank:
        raise NodeRefusedError("the operand has no rows")
    return TensorList(x.dtype, x.shape[0], rows=x)


@taken("TensorListGetItem")
def get_item(c: Call) -> Value:
    """The element at a place."""
    c.raw(2)
    return _written(c, 0).read(_place(c, 1))


@taken("TensorListSetItem", refused="two elements in one step of a loop; a place that is not the step's")
def set_item(c: Call) -> TensorList | LoopList:
    """The list with one element written."""
    before = c.things[0]
    if c.flag("resize_if_index_out_of_bounds"):
        if isinstance(before, TensorList):
            before = replace(before, grows=True)
        elif isinstance(before, LoopList):
            before = replace(before, before=replace(before.before, grows=True))
    return _put(c, before, _place(c, 1), c.value(2))


@taken("TensorListPushBack")
def push_back(c: Call) -> TensorList | LoopList:
    """The list with one element more."""
    before, value = c.things[0], c.value(1)
    if isinstance(before, LoopList):
        if before.write is not None:
            raise NodeRefusedError("a loop writes two elements of a list in one step")
        return replace(before, write=(None, value))
    found = c.thing(0, TensorList)
    if not isinstance(found.count, int):
        raise NodeRefusedError("an element is added to a list whose number of elements only a call knows")
    return found.with_item(found.count, value)


@taken("TensorListStack", refused="a number of elements that is not that of the list")
def stack(c: Call) -> Value:
    """All elements along a new first axis."""
    found = _written(c, 0)
    element, count = _element(c, 1), c.integer("num_elements", -1)
    if count >= 0:
        c.agree("the number of elements", found.count, count)
    if found.rows is None and found.element is None:
        found = replace(found, element=element)
    return found.stacked()


@taken("TensorListGather", refused=_PLACES)
def gather_list(c: Call) -> Value:
    """Elements at places, along a new first axis."""
    found = _written(c, 0)
    element = _element(c, 2)
    return _gathered(c, found if found.element is not None else replace(found, element=element), 1)


def _gathered(c: Call, tensor_list: TensorList, i: int) -> Value:
    rows = tensor_list.stacked()
    return rows if _in_order(c.value(i), tensor_list.count) else li.take(rows, c.value(i), 0)


@taken("TensorListLength")
def length(c: Call) -> SizeArray | Value:
    """How many elements the list has."""
    return s.folded(s.objects([_written(c, 0).count], ()), DType.i32)


# -- TensorArrays of TensorFlow 1: what they hold is in their flow


@taken("TensorArrayV3", results="handle flow")
def array(c: Call) -> list[TensorList]:
    """An array of so many elements, none of them written; as what names it, and as what it holds."""
    grows = c.flag("dynamic_size")
    found = TensorList(c.dtype("dtype"), c.dim(0, "the size"), c.shape("element_shape"), grows=grows)
    return [found, found]


@taken("TensorArrayScatterV3", refused=_PLACES)
def scatter(c: Call) -> TensorList:
    """The array with all elements written."""
    c.thing(0, TensorList)
    before, x = _written(c, 3), c.value(2)
    if before.rows is not None or before.items or not x.rank:
        raise NodeRefusedError("elements are written to an array that has some already")
    c.agree("the number of elements", before.count, x.shape[0])
    if not _all_places(c, 1, x.shape[0]):
        raise NodeRefusedError("elements are written at places other than all of them in order")
    return replace(before, rows=x)


@taken("TensorArrayReadV3")
def read_array(c: Call) -> Value:
    """The element at a place."""
    return _written(c, 2).read(_place(c, 1))


@taken("TensorArrayWriteV3", refused="two elements in one step of a loop; a place that is not the step's")
def write_array(c: Call) -> TensorList | LoopList:
    """The array with one element written."""
    return _put(c, c.things[3] if len(c.things) > 3 else None, _place(c, 1), c.value(2))


@taken("TensorArrayGatherV3")
def gather_array(c: Call) -> Value:
    """Elements at places, along a new first axis."""
    element = c.shape("element_shape")
    found = _written(c, 2)
    return _gathered(c, found if found.element is not None else replace(found, element=element), 1)


@taken("TensorArraySizeV3")
def array_size(c: Call) -> SizeArray | Value:
    """How many elements the array has."""
    return s.folded(s.objects([_written(c, 1).count], ()), DType.i32)

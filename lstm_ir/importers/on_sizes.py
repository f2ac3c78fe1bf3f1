"""What an op does to operands that are sizes: arithmetic by its rule, moves by a run over the places of elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from lstm_ir.importers.operands import Operands, Result
from lstm_ir.importers.sizes import Computed, SizeArray, UndecidedError, folded, objects
from lstm_ir.importers.table import ALL, OpEntry
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.types import DType

C = TypeVar("C", bound=Operands)
MOST_AXES = 16


def on_sizes(entry: OpEntry[C], call: C) -> list[Result] | None:
    """What the op does to operands that are sizes, as sizes; None where it makes tensors."""
    if not any(isinstance(v, SizeArray) for v in call.inputs):
        return None
    if entry.sizes is not None:
        return _computed(entry, call)
    return _moved(entry, call) if entry.moves else None


def _computed(entry: OpEntry[C], call: C) -> list[Result] | None:
    arrays = [call.elements(i) for i in range(len(call.inputs))]
    dtypes = {v.dtype for v in call.inputs if v is not None}
    if any(a is None for a in arrays):
        return None
    assert entry.sizes is not None
    try:
        out = entry.sizes(*arrays)
    except UndecidedError:
        return None
    truth = out.size > 0 and all(isinstance(d, bool) for d in out.flat)
    return [folded(out, DType.i1 if truth else max(dtypes, key=lambda d: d.bits))]


def _computed_sizes(v: Value | SizeArray) -> Any:
    """The elements of a few integers that only a call knows: those of a shape."""
    if not isinstance(v, Value) or not v.dtype.is_int:
        return None
    shape = [d for d in v.shape if isinstance(d, int)]
    if len(shape) < v.rank or math.prod(shape) > MOST_AXES:
        return None
    return objects([Computed(v, k) for k in range(math.prod(shape))], tuple(shape))


def _moved(entry: OpEntry[C], call: C) -> list[Result] | None:
    """The handler run over the places of the elements, then the elements put where those went."""
    at_ = range(len(call.inputs)) if ALL in entry.moves else entry.moves
    if not any(isinstance(call.inputs[i], SizeArray) for i in at_ if i < len(call.inputs)):
        return None
    inputs = list(call.inputs)
    elements: list[Any] = []
    dtype = DType.i64
    for i in at_:
        if not call.has(i):
            continue
        array, dtype = call.elements(i, clamped=True), call.raw(i).dtype
        array = _computed_sizes(call.raw(i)) if array is None else array
        if array is None:
            return None
        inputs[i] = constant(np.arange(len(elements), len(elements) + array.size).reshape(array.shape))
        elements += array.flat
    moved = call.with_inputs(inputs)
    built = entry.build(moved)
    moved.check_all_read()
    out: list[Result] = []
    for r in built if isinstance(built, Sequence) else [built]:
        places = moved.elements_of(r)
        if places is None:
            return None
        out.append(folded(objects([elements[p] for p in places.flat], places.shape), dtype))
    return out

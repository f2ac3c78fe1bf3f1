"""Layers over several tensors: element by element, joined, or as products."""

from __future__ import annotations

from collections.abc import Callable

from lstm_ir import ops as li
from lstm_ir.importers.keras.call import LayerCall, Masked
from lstm_ir.importers.keras.handlers.normalisation import by_norm
from lstm_ir.importers.keras.older import LEAST_NORM
from lstm_ir.importers.keras.table import taken
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.graph import Value

Merge = Callable[[Value, Value], Value]


def _operands(c: LayerCall) -> list[Value]:
    """The tensors with equally many axes: axes of size 1 behind the batch, as Keras adds them."""
    found = c.values()
    if len(found) < 1:
        raise NodeRefusedError("it is called without a list of tensors")
    rank = max(v.rank for v in found)
    return [li.reshape(v, (v.shape[0], *[1] * (rank - v.rank), *v.shape[1:])) if v.rank < rank else v for v in found]


def _either(masks: list[Value | None]) -> Value | None:
    """Keras' mask of a merge: steps that one of the tensors has, where all have masks."""
    there = [m for m in masks if m is not None]
    if not there or len(there) < len(masks):
        return None
    found = there[0]
    for m in there[1:]:
        found = li.logical_or(found, m)
    return found


def merge(name: str, function: Merge, divided: bool = False) -> None:
    """Register a sum, difference or mean."""

    @taken(name, "")
    def build(c: LayerCall) -> Masked:
        values = _operands(c)
        y = values[0]
        for v in values[1:]:
            y = function(y, v)
        return Masked((y / float(len(values)) if divided else y,), (_either(c.masks),))


def _there(c: LayerCall, values: list[Value]) -> list[Value | None]:
    """The masks, each with an axis of size 1 where its tensor has columns."""
    found: list[Value | None] = []
    for before, v, m in zip(c.values(), values, c.masks, strict=True):
        if m is not None and (before.rank != v.rank or m.rank != v.rank - 1):
            raise NodeRefusedError(f"a mask {m.type} of {before.type}, among operands of {v.rank} axes, is not taken")
        found.append(None if m is None else li.expand_dims(m, m.rank))
    return found


@taken("Multiply", "")
def multiplied(c: LayerCall) -> Masked:
    """The product: a step that a mask names leaves its operand out, and is 0 where no operand has it."""
    values, masks = _operands(c), c.masks
    there = _there(c, values)
    kept = [v if m is None else li.where(m, v, li.ones(v.shape, v.dtype)) for v, m in zip(values, there, strict=True)]
    y = kept[0]
    for v in kept[1:]:
        y = y * v
    either = _either(there)
    if either is not None:
        y = li.where(either, y, li.zeros_like(y))
    return Masked((y,), (_either(masks),))


def choice(name: str, function: Merge) -> None:
    """Register a merge that takes the other operand at a step that a mask names."""

    @taken(name, "")
    def build(c: LayerCall) -> Masked:
        values = _operands(c)
        there = _there(c, values)
        y, mask = values[0], there[0]
        for v, m in zip(values[1:], there[1:], strict=True):
            new = v if m is None else li.where(m, v, y)
            y = function(y if mask is None else li.where(mask, y, new), new)
            mask = None if m is None or mask is None else li.logical_or(mask, m)
        return Masked((y,), (_either(c.masks),))


merge("Add", li.add)
merge("Subtract", li.subtract)
merge("Average", li.add, divided=True)
choice("Maximum", li.maximum)
choice("Minimum", li.minimum)


@taken("Concatenate", "axis", refused="masks of tensors without columns")
def concatenate(c: LayerCall) -> Masked:
    """Along an axis; a step exists where one tensor has it, and where a tensor has no mask."""
    values = c.values()
    axis = c.axis_of(c.integer("axis", -1), values[0].rank)
    masks = c.masks
    mask = None
    if any(m is not None for m in masks):
        rank = values[0].rank
        if any(m is not None and m.rank != rank - 1 for m in masks):
            raise NodeRefusedError(f"a mask of other axes than those of {values[0].type} but the last is not taken")
        if axis == rank - 1:
            mask = _either(masks) if all(m is not None for m in masks) else li.ones(values[0].shape[:-1], "i1")
        else:
            parts = [li.ones(v.shape[:-1], "i1") if m is None else m for v, m in zip(values, masks, strict=True)]
            mask = li.concat(parts, axis)
    return Masked((li.concat(values, axis),), (mask,))


@taken("Dot", f"axes normalize {LEAST_NORM}")
def dot(c: LayerCall) -> Value:
    """Products of rows, summed over one axis of each."""
    values = c.values()
    if len(values) != 2:
        raise NodeRefusedError(f"it is called with {len(values)} tensors, not two")
    a, b = values
    given = c.get("axes")
    axes = given if isinstance(given, list) else [given, given]
    if len(axes) != 2 or any(isinstance(k, bool) or not isinstance(k, int) for k in axes):
        raise NodeRefusedError(f"axes is {given!r:.40}")
    p, q = c.axis_of(axes[0], a.rank), c.axis_of(axes[1], b.rank)
    if not p or not q:
        raise NodeRefusedError("axes name the batch")
    if c.flag("normalize"):
        a, b = (by_norm(v, (k,), c.real(LEAST_NORM, 1e-7)) for v, k in ((a, p), (b, q)))
    c.agree("the axes of a dot", a.shape[p], b.shape[q])
    y = li.dot_general(a, b, ((p,), (q,)), ((0,), (0,)))
    return li.expand_dims(y, 1) if y.rank == 1 else y

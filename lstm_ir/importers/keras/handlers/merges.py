"""Layers over several tensors: element by element, joined, or as products."""

from __future__ import annotations

from collections.abc import Callable

from lstm_ir import ops as li
from lstm_ir.importers.keras.call import LayerCall, Masked
from lstm_ir.importers.keras.table import taken
from lstm_ir.importers.refusals import RefusedError
from lstm_ir.ir.graph import Value

Merge = Callable[[Value, Value], Value]


def _operands(c: LayerCall) -> list[Value]:
    """The tensors with equally many axes: axes of size 1 behind the batch, as Keras adds them."""
    found = c.values()
    if len(found) < 1:
        raise RefusedError("it is called without a list of tensors")
    rank = max(v.rank for v in found)
    return [li.reshape(v, (v.shape[0], *[1] * (rank - v.rank), *v.shape[1:])) if v.rank < rank else v for v in found]


def _any(masks: list[Value | None]) -> Value | None:
    """Steps that one of the tensors has, where all have masks."""
    there = [m for m in masks if m is not None]
    if not there or len(there) < len(masks):
        return None
    found = there[0]
    for m in there[1:]:
        found = li.logical_or(found, m)
    return found


def _all(masks: list[Value | None]) -> Value | None:
    """Keras' masks of merges: steps that all tensors with masks have."""
    if any(m is None for m in masks) or not masks:
        return None
    found = masks[0]
    for m in masks[1:]:
        assert found is not None
        assert m is not None
        found = li.logical_and(found, m)
    return found


def merge(name: str, function: Merge, divided: bool = False) -> None:
    """Register a sum, difference or mean."""

    @taken(name, "")
    def build(c: LayerCall) -> Masked:
        values = _operands(c)
        y = values[0]
        for v in values[1:]:
            y = function(y, v)
        return Masked((y / float(len(values)) if divided else y,), (_merged(c),))


def _merged(c: LayerCall) -> Value | None:
    masks = c.masks
    return _all(masks) if all(m is not None for m in masks) else None


def choice(name: str, function: Merge) -> None:
    """Register a merge that leaves out the steps which a mask names."""

    @taken(name, "", refused="masks")
    def build(c: LayerCall) -> Value:
        if any(m is not None for m in c.masks):
            raise RefusedError("a mask on one of its operands is not taken")
        values = _operands(c)
        y = values[0]
        for v in values[1:]:
            y = function(y, v)
        return y


merge("Add", li.add)
merge("Subtract", li.subtract)
merge("Average", li.add, divided=True)
choice("Multiply", li.multiply)
choice("Maximum", li.maximum)
choice("Minimum", li.minimum)


@taken("Concatenate", "axis", refused="masks along time")
def concatenate(c: LayerCall) -> Masked:
    """Along an axis; a step exists where one tensor has it."""
    values = c.values()
    axis = c.axis_of(c.integer("axis", -1), values[0].rank)
    masks = c.masks
    mask = None
    if any(m is not None for m in masks):
        if values[0].rank != 3 or axis != 2:
            raise RefusedError(f"masks of tensors that are joined along axis {axis} are not taken")
        # A tensor without a mask has all steps.
        mask = _any(masks) if all(m is not None for m in masks) else li.ones(values[0].shape[:2], "i1")
    return Masked((li.concat(values, axis),), (mask,))


@taken("Dot", "axes normalize")
def dot(c: LayerCall) -> Value:
    """Products of rows, summed over one axis of each."""
    values = c.values()
    if len(values) != 2:
        raise RefusedError(f"it is called with {len(values)} tensors, not two")
    a, b = values
    given = c.get("axes")
    axes = given if isinstance(given, list) else [given, given]
    if len(axes) != 2 or any(isinstance(k, bool) or not isinstance(k, int) for k in axes):
        raise RefusedError(f"axes is {given!r:.40}")
    p, q = c.axis_of(axes[0], a.rank), c.axis_of(axes[1], b.rank)
    if not p or not q:
        raise RefusedError("axes name the batch")
    if c.flag("normalize"):
        a, b = (v * li.rsqrt(li.maximum(li.sum(v * v, k, keepdims=True), 1e-12)) for v, k in ((a, p), (b, q)))
    c.agree("the axes of a dot", a.shape[p], b.shape[q])
    y = li.dot_general(a, b, ((p,), (q,)), ((0,), (0,)))
    return li.expand_dims(y, 1) if y.rank == 1 else y

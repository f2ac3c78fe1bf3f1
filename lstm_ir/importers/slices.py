"""Ranges along an axis, whose bounds are sizes: bounds outside are moved to the ends, as in NumPy."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers import sizes as s
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import UndecidedError
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ops.primitive.window import slice_axis

TO_THE_END = 2**31 - 1  # bounds of a slice that exporters write for "to the end"


def sliced(x: Value, axis: int, start: Dim, end: Dim, step: int) -> Value:
    """x from `start` up to `end` along an axis, each `step`-th row; a negative step goes backwards."""
    if step == 0:
        raise NodeRefusedError("a step is 0")
    size = x.shape[axis]
    start, end = _from_start(size, start, step), _from_start(size, end, step)
    if step < 0:  # place i is place size - 1 - i of the reversed operand
        x = li.reverse(x, axis)
        start, end = (s.minus(dims.add(size, -1), d) for d in (start, end))
    if isinstance(start, int) and isinstance(end, int):
        end = max(start, end)
    return slice_axis(x, axis, start, end, abs(step))


def _from_start(size: Dim, bound: Dim, step: int) -> Dim:
    """A bound counted from the start, inside the axis: 0..size, or -1..size-1 of a negative step."""
    low, high = (0, size) if step > 0 else (-1, dims.add(size, -1))
    if isinstance(bound, int) and abs(bound) >= TO_THE_END:
        return high if bound > 0 else low
    if dims.at_least(dims.mul(bound, -1), 1):  # it is below 0, at whatever size
        bound = dims.add(size, bound)
    for limit, choose in ((high, s.smaller), (low, s.larger)):
        try:
            bound = choose(bound, limit)
        except UndecidedError:
            continue  # a call at which it matters is refused by the slice's own bounds
    return bound

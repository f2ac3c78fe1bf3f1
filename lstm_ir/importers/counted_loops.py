"""Loops of a foreign model whose number of steps follows from sizes: what counts, when they end, which rows they read.

The body is walked once. What it says of its end, and which rows of outer tensors it reads at a
step, is found in the nodes that come out; the loop is then a scan over these rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstm_ir import ops as li
from lstm_ir.importers import sizes as s
from lstm_ir.importers.counted import Counted, counted, index
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value, topological

ENDS = "it ends when a condition says so that only a call knows"


def counting(
    step: Value, states: Sequence[Value], values: Sequence[Value], first: Sequence[np.ndarray[Any, Any] | None]
) -> dict[Value, Counted]:
    """Of the step's number, and of each state that a number is added to at a step, what it is at a step."""
    found = {step: Counted(step, 1, 0)}
    for state, new, start in zip(states, values, first, strict=False):
        if start is None or start.size != 1 or not state.dtype.is_int:
            continue
        after = counted(new)
        if after.of is state and after.times == 1 and isinstance(after.more, int):
            found[state] = Counted(step, after.more, start.reshape(-1)[0])
    return found


def at_step(v: Value, counters: dict[Value, Counted]) -> Counted | None:
    """A single integer by the number of the step; None where other values take part."""
    found = counted(v)
    if found.of is None:
        return found
    by = counters.get(found.of)
    if by is None:
        return None
    return Counted(by.of, by.times * found.times, dims.add(dims.mul(by.more, found.times), found.more))


def all_of(v: Value) -> list[Value]:
    """The conditions of which `v` is the conjunction."""
    while v.op in ("reshape", "broadcast_in_dim"):
        (v,) = v.node.inputs
    if v.op == "and":
        return [u for operand in v.node.inputs for u in all_of(operand)]
    return [v]


def below(v: Value, counters: dict[Value, Counted]) -> tuple[int, Dim]:
    """(a, b) of a condition a * step < b."""
    if v.op != "compare" or v.node.attrs["direction"] not in ("LT", "LE", "GT", "GE"):
        raise NodeRefusedError(ENDS)
    left, right = (at_step(u, counters) for u in v.node.inputs)
    if left is None or right is None:
        raise NodeRefusedError(ENDS)
    how = v.node.attrs["direction"]
    if how[0] == "G":
        left, right = right, left
    bound = dims.add(s.minus(right.more, left.more), int(how[1] == "E"))
    return left.times - right.times, bound


def up(a: Dim, b: int) -> Dim:
    """a / b, rounded up."""
    return a if b == 1 else dims.floordiv(dims.add(a, b - 1), b)


@dataclass(frozen=True)
class Row:
    """A row of an outer tensor that a step reads: the value `read`, along `axis`, from the last one if backward."""

    read: Value
    tensor: Value
    axis: int
    backward: bool

    def first_axis(self) -> Value:
        """The tensor with the rows' axis first."""
        others = [a for a in range(self.tensor.rank) if a != self.axis]
        return li.transpose(self.tensor, (self.axis, *others)) if self.axis else self.tensor


def rows_read(values: Sequence[Value], own: set[Value], counters: dict[Value, Counted], steps: Dim) -> list[Row]:
    """Rows that are read at the place of the step, or at its place from the end, of tensors with one row a step."""
    nodes = topological([v.node for v in values])
    inside: set[Value] = set(own)
    found: list[Row] = []
    for n in nodes:
        if any(v in inside for v in n.inputs):
            inside.update(n.values)
        if n.op.name != "gather" or n.inputs[0] in inside or n.inputs[1].rank != 0:
            continue
        tensor, axis = n.inputs[0], n.attrs["axis"]
        if tensor.shape[axis] != steps:
            continue
        place = at_step(index(n.inputs[1], steps), counters)
        if place is None or place.of is None:
            continue
        if (place.times, place.more) in ((1, 0), (-1, dims.add(steps, -1))):
            found.append(Row(n.values[0], tensor, axis, place.times < 0))
    return found

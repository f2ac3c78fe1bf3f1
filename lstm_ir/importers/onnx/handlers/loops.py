"""Loop: a number of steps over states, where that number follows from sizes before it starts.

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
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.handlers.control import BODIES, given
from lstm_ir.importers.onnx.handlers.counted import Counted, counted
from lstm_ir.importers.onnx.handlers.shapes import FAR
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.operands import Result
from lstm_ir.importers.refusals import RefusedError
from lstm_ir.importers.sizes import UndecidedError
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value, topological
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.pullback import rebuilt
from lstm_ir.ir.types import DType, TensorType

Values = tuple[Value, ...]
_ENDS = "it ends when a condition says so that only a call knows"


@taken("Loop", *BODIES, refused="a number of steps, or an end, that only a call knows")
def loop(c: Call) -> list[Result]:
    """States go from step to step; what each step gives besides them is stacked."""
    body = c.graph("body")
    most = _most(c)
    init = c.values(2)
    step = parameter("step", TensorType((), DType.i64))
    states = [parameter(f"state{k}", v.type) for k, v in enumerate(init)]
    going, *results = c.inner(body, [step, li.constant(np.array(True)), *states])
    values = [given(r) for r in results]
    if len(values) < len(init):
        raise RefusedError(f"its body has {len(values)} results for {len(init)} states")
    counters = _counters(step, states, values, [c.elements(2 + k) for k in range(len(init))])
    steps = _steps(c, going, most, counters)
    rows = _rows(values, {step, *states}, counters, steps)

    def cell(state: Values, row: Values, now: Value) -> tuple[Values, Values]:
        env = {step: li.convert(now, DType.i64), **dict(zip(states, state, strict=True))}
        env.update((r.read, x) for r, x in zip(rows, row, strict=True))
        made = tuple(rebuilt(values, env))
        return made[: len(init)], made[len(init) :]

    xs = tuple(r.first_axis() for r in rows)
    flags = [*(r.backward for r in rows), *[False] * (len(values) - len(init))]
    final, ys = li.scan(cell, tuple(init), xs, length=steps, reverse=flags, with_step=True)
    return [*final, *ys]


def _most(c: Call) -> Dim | None:
    """The greatest number of steps; None where the condition alone ends it."""
    if not c.has(0):
        return None
    most = c.dim(0, "the number of steps")
    if not isinstance(most, int):
        return most
    return None if most >= FAR else max(most, 0)


def _counters(
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


def _at_step(v: Value, counters: dict[Value, Counted]) -> Counted | None:
    """A single integer by the number of the step; None where other values take part."""
    found = counted(v)
    if found.of is None:
        return found
    by = counters.get(found.of)
    if by is None:
        return None
    return Counted(by.of, by.times * found.times, dims.add(dims.mul(by.more, found.times), found.more))


# the end


def _steps(c: Call, going: Result, most: Dim | None, counters: dict[Value, Counted]) -> Dim:
    if going is None:
        raise RefusedError("its body gives no condition")
    starts, more = _known(c, c.raw(1)) if c.has(1) else True, _known(c, going)
    if starts is False:
        return 0
    if more is True and starts is True:
        if most is None:
            raise RefusedError("it has no number of steps, and its condition does not end it")
        return most
    if not isinstance(going, Value) or more is not None:
        raise RefusedError("whether it starts depends on values that only a call knows")
    try:
        steps = _until(given(going), None if starts is True else given(c.raw(1)), counters)
        return steps if most is None else s.smaller(steps, most)
    except UndecidedError:
        raise RefusedError("the number of its steps cannot be decided from the sizes") from None


def _known(c: Call, v: Result) -> bool | None:
    array = c.elements_of(v)
    return None if array is None or not array.size else all(bool(e) for e in array.flat)


def _until(going: Value, starts: Value | None, counters: dict[Value, Counted]) -> Dim:
    """The number of steps of a loop that goes on while a counter is below a size."""
    parts = _all_of(going)
    first = [None] * len(parts) if starts is None else _all_of(starts)
    if len(parts) != len(first):
        raise RefusedError("whether it starts depends on values that only a call knows")
    found: list[Dim] = []
    for part, start in zip(parts, first, strict=True):
        slope, bound = _below(part, counters)
        if slope < 1:
            raise RefusedError(_ENDS)
        if start is None:
            found.append(dims.add(s.larger(_up(bound, slope), 0), 1))
            continue
        at_start, limit = _below(start, {})
        if at_start or limit != dims.add(bound, slope):
            raise RefusedError("it starts by another condition than it goes on")
        found.append(s.larger(_up(limit, slope), 0))
    steps = found[0]
    for other in found[1:]:
        steps = s.smaller(steps, other)
    return steps


def _all_of(v: Value) -> list[Value]:
    """The conditions of which `v` is the conjunction."""
    while v.op in ("reshape", "broadcast_in_dim"):
        (v,) = v.node.inputs
    if v.op == "and":
        return [u for operand in v.node.inputs for u in _all_of(operand)]
    return [v]


def _below(v: Value, counters: dict[Value, Counted]) -> tuple[int, Dim]:
    """(a, b) of a condition a * step < b."""
    if v.op != "compare" or v.node.attrs["direction"] not in ("LT", "LE", "GT", "GE"):
        raise RefusedError(_ENDS)
    left, right = (_at_step(u, counters) for u in v.node.inputs)
    if left is None or right is None:
        raise RefusedError(_ENDS)
    how = v.node.attrs["direction"]
    if how[0] == "G":
        left, right = right, left
    bound = dims.add(s.minus(right.more, left.more), int(how[1] == "E"))
    return left.times - right.times, bound


def _up(a: Dim, b: int) -> Dim:
    """a / b, rounded up."""
    return a if b == 1 else dims.floordiv(dims.add(a, b - 1), b)


# the rows


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


def _rows(values: Sequence[Value], own: set[Value], counters: dict[Value, Counted], steps: Dim) -> list[Row]:
    """Rows that are read at the place of the step, or at its place from the end, of tensors with one row a step."""
    nodes = topological([v.node for v in values])
    inside: set[Value] = set(own)
    found: list[Row] = []
    for n in nodes:
        if any(v in inside for v in n.inputs):
            inside.update(n.values)
        if n.op.name != "gather" or n.inputs[0] in inside or n.inputs[1].rank != 0:
            continue
        tensor, axis, place = n.inputs[0], n.attrs["axis"], _at_step(n.inputs[1], counters)
        if place is None or place.of is None or tensor.shape[axis] != steps:
            continue
        if (place.times, place.more) in ((1, 0), (-1, dims.add(steps, -1))):
            found.append(Row(n.values[0], tensor, axis, place.times < 0))
    return found

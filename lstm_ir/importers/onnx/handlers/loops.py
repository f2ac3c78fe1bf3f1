"""Loop: a number of steps over states, where that number follows from sizes before it starts.

The body is walked once. What it says of its end, and which rows of outer tensors it reads at a
step, is found in the nodes that come out; the loop is then a scan over these rows.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from lstm_ir import ops as li
from lstm_ir.importers import sizes as s
from lstm_ir.importers.counted import Counted
from lstm_ir.importers.counted_loops import ENDS, all_of, below, counting, rows_read, up
from lstm_ir.importers.lists import LoopList, TensorList
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.handlers.control import BODIES, given, need_condition
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.operands import Result
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import UndecidedError
from lstm_ir.importers.slices import TO_THE_END
from lstm_ir.ir import dims
from lstm_ir.ir.clone import clone
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.types import DType, TensorType

Values = tuple[Value, ...]
_UNDECIDED = "the number of its steps cannot be decided from the sizes"


@taken("Loop", *BODIES, refused="a number of steps, or an end, that only a call knows")
def loop(c: Call) -> list[Result]:
    """States go from step to step; what each step gives besides them is stacked."""
    body = c.graph("body")
    most = _most(c)
    carried = range(2, len(c.inputs))
    lists = {k: LoopList(_whole(c, k), k) for k in carried if c.is_sequence(k)}
    places = [k for k in carried if k not in lists]
    init = [c.value(k) for k in places]
    step = parameter("step", TensorType((), DType.i64))
    states = [parameter(f"state{k}", v.type) for k, v in zip(places, init, strict=True)]
    begun: dict[int, Any] = {**lists, **dict(zip(places, states, strict=True))}
    going, *results = c.inner(body, [step, li.constant(np.array(True)), *(begun[k] for k in carried)])
    if len(results) < len(carried):
        raise NodeRefusedError(f"its body has {len(results)} results for {len(carried)} states")
    after: dict[int, Any] = dict(zip(carried, results, strict=False))
    longer = [k for k in lists if _made_longer(lists[k], after[k])]
    values = [given(after[k]) for k in places]
    values += [_element(after[k]) for k in longer] + [given(r) for r in results[len(carried) :]]
    counters = counting(step, states, values, [c.elements(k) for k in places])
    steps = _steps(c, going, most, counters)
    rows = rows_read(values, {step, *states}, counters, steps)

    def cell(state: Values, row: Values, now: Value) -> tuple[Values, Values]:
        env = {step: li.convert(now, DType.i64), **dict(zip(states, state, strict=True))}
        env.update((r.read, x) for r, x in zip(rows, row, strict=True))
        made = tuple(clone(values, env))
        return made[: len(init)], made[len(init) :]

    xs = tuple(r.first_axis() for r in rows)
    flags = [*(r.backward for r in rows), *[False] * (len(values) - len(init))]
    final, ys = li.scan(cell, tuple(init), xs, length=steps, reverse=flags, with_step=True)
    ended: dict[int, Any] = {k: v.before for k, v in lists.items()} | dict(zip(places, final, strict=True))
    ended |= {k: _joined(lists[k].before, rows) for k, rows in zip(longer, ys, strict=False)}
    return [*(ended[k] for k in carried), *ys[len(longer) :]]


# sequences


def _whole(c: Call, k: int) -> TensorList:
    found = c.sequence(k)
    if isinstance(found, LoopList):
        raise NodeRefusedError("a loop in a loop goes on with a sequence that the outer one makes longer")
    return found


def _made_longer(before: LoopList, after: Any) -> bool:
    """Whether a step inserts an element; a sequence that it exchanges for another one is refused."""
    if not isinstance(after, LoopList) or after.variable != before.variable:
        raise NodeRefusedError("a step of the loop exchanges a sequence for another one")
    return after.write is not None


def _element(after: Any) -> Value:
    value: Value = after.write[1]
    return value


def _joined(before: TensorList, rows: Value) -> TensorList:
    whole = rows if before.count == 0 else li.concat([before.stacked(), rows], 0)
    return TensorList(rows.dtype, whole.shape[0], rows=whole, grows=True)


def _most(c: Call) -> Dim | None:
    """The greatest number of steps; None where the condition alone ends it."""
    if not c.has(0):
        return None
    most = c.axis_size(0, "the number of steps")
    if not isinstance(most, int):
        return most
    return None if most >= TO_THE_END else max(most, 0)


# the end


def _steps(c: Call, going: Result, trip_count: Dim | None, counters: dict[Value, Counted]) -> Dim:
    if going is None:
        raise NodeRefusedError("its body gives no condition")
    if not isinstance(going, Value | s.SizeArray):
        raise NodeRefusedError("its condition is a sequence")
    for condition in (going, *([c.raw(1)] if c.has(1) else [])):
        need_condition(condition)
    starts, more = _known(c, c.raw(1)) if c.has(1) else True, _known(c, going)
    if starts is False:
        return 0
    if more is True and starts is True:
        if trip_count is None:
            raise NodeRefusedError("it has no number of steps, and its condition does not end it")
        return trip_count
    if more is False and starts is True:  # the first step is the last
        return _least(1, trip_count)
    if not isinstance(going, Value) or more is not None:
        raise NodeRefusedError("whether it starts depends on values that only a call knows")
    try:
        steps = _until(given(going), None if starts is True else given(c.raw(1)), counters)
    except UndecidedError:
        raise NodeRefusedError(_UNDECIDED) from None
    return _least(steps, trip_count)


def _least(steps: Dim, trip_count: Dim | None) -> Dim:
    if trip_count is None:
        return steps
    for a, b in ((steps, trip_count), (trip_count, steps)):  # 1 and T + 1 are decided in one order alone
        with suppress(UndecidedError):
            return s.smaller(a, b)
    raise NodeRefusedError(_UNDECIDED)


def _known(c: Call, v: Result) -> bool | None:
    array = c.elements_of(v)
    return None if array is None or not array.size else all(bool(e) for e in array.flat)


def _until(going: Value, starts: Value | None, counters: dict[Value, Counted]) -> Dim:
    """The number of steps of a loop that goes on while a counter is below a size."""
    parts = all_of(going)
    first = [None] * len(parts) if starts is None else all_of(starts)
    if len(parts) != len(first):
        raise NodeRefusedError("whether it starts depends on values that only a call knows")
    found: list[Dim] = []
    for part, start in zip(parts, first, strict=True):
        slope, bound = below(part, counters)
        if slope < 1:
            raise NodeRefusedError(ENDS)
        if start is None:
            found.append(dims.add(s.larger(up(bound, slope), 0), 1))
            continue
        at_start, limit = below(start, {})
        if at_start or limit != dims.add(bound, slope):
            raise NodeRefusedError("it starts by another condition than it goes on")
        found.append(s.larger(up(limit, slope), 0))
    steps = found[0]
    for other in found[1:]:
        steps = s.smaller(steps, other)
    return steps

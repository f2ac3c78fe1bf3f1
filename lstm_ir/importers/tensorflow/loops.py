"""Loops of TensorFlow as scans: what counts, how many steps there are, which rows are read and written at a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers import sizes as s
from lstm_ir.importers.counted import Counted
from lstm_ir.importers.counted_loops import ENDS, all_of, at_step, below, counting, rows_read, up
from lstm_ir.importers.known import Knowledge
from lstm_ir.importers.lists import LoopList, TensorList
from lstm_ir.importers.naming import tensor
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import SizeArray, UndecidedError
from lstm_ir.ir import dims
from lstm_ir.ir.clone import clone
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value, topological
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.types import DType, TensorType

Step = Callable[[list[Any]], tuple[Value | SizeArray, list[Any]]]
"""From the loop's variables: whether there is another step, and the variables after it."""


def looped(knowledge: Knowledge, init: Sequence[Any], fixed: Sequence[bool], run: Step) -> list[Any]:
    """The variables after the loop. `fixed` are those that every step passes on as they are."""
    step = parameter("step", TensorType((), DType.i64))
    things: list[Any] = list(init)
    states: dict[int, Value] = {}
    for k, v in enumerate(init):
        if fixed[k]:
            continue
        if isinstance(v, TensorList):
            things[k] = LoopList(v, k)
        elif isinstance(v, Value | SizeArray):
            states[k] = things[k] = parameter(f"state{k}", tensor(v).type)
        else:
            raise NodeRefusedError(f"variable {k} of the loop changes, and is no tensor and no list")
    going, results = run(things)
    values = [_tensor(results[k], k) for k in states]
    first = [_elements(knowledge, init[k]) for k in states]
    counters = counting(step, list(states.values()), values, first)
    lists = {k: _written(r, k) for k, r in enumerate(results) if not fixed[k] and k not in states}
    own = {step, *states.values()}
    end = _end(knowledge, tensor(going), counters, own, [w.before for w in lists.values()])
    outs = [_out(w.before, w, counters, end.steps) for w in lists.values()]
    made = _Loop(states, {k: tensor(init[k]) for k in states}, values, outs, own, counters, end).scan(step)
    after = dict(zip([*states, *lists], made, strict=True))
    return [after.get(k, v) for k, v in enumerate(init)]


def _tensor(result: Any, k: int) -> Value:
    if not isinstance(result, Value | SizeArray):
        raise NodeRefusedError(f"variable {k} of the loop is no tensor after a step")
    return tensor(result)


def _elements(knowledge: Knowledge, v: Value | SizeArray) -> Any:
    if isinstance(v, SizeArray):
        return None if v.clamped else v.array
    array = knowledge.array(v) if v.dtype.is_int else None
    return None if array is None else array.astype(object)


# -- the end


@dataclass(frozen=True)
class _End:
    """`steps` at most; `count` of them where only a call knows how many."""

    steps: Dim
    count: Value | None


def _end(
    knowledge: Knowledge, going: Value, counters: dict[Value, Counted], own: set[Value], lists: Sequence[TensorList]
) -> _End:
    """A loop goes on while counters are below sizes, or below a number that is known when it starts."""
    found: list[Dim] = []
    counts: list[Value] = []
    for part in all_of(going):
        known = knowledge.array(part)
        if known is not None and known.all():
            continue
        dynamic = _computed_bound(part, counters, own)
        if dynamic is not None:
            counts.append(dynamic)
            continue
        slope, bound = below(part, counters)
        if slope < 1:
            raise NodeRefusedError(ENDS)
        found.append(_least_zero(up(bound, slope)))
    if not found:
        found = [v.count for v in lists if not v.grows]
        if not found:
            raise NodeRefusedError("the number of its steps is computed, and no list says how many there are at most")
    steps = found[0]
    try:
        for other in found[1:]:
            steps = s.smaller(steps, other)
    except UndecidedError:
        raise NodeRefusedError("the number of its steps cannot be decided from the sizes") from None
    if not counts:
        return _End(steps, None)
    count = counts[0]
    for more in counts[1:]:
        count = li.minimum(count, more)
    return _End(steps, li.clip(count, li.constant(0, DType.i64), li.convert(li.size(steps), DType.i64)))


def _least_zero(steps: Dim) -> Dim:
    try:
        return s.larger(steps, 0)
    except UndecidedError:
        raise NodeRefusedError("the number of its steps cannot be decided from the sizes") from None


def _computed_bound(part: Value, counters: dict[Value, Counted], own: set[Value]) -> Value | None:
    """The number of steps of `counter < v`, where v is computed before the loop; None for another condition."""
    if part.op != "compare" or part.node.attrs["direction"] not in ("LT", "GT"):
        return None
    left, right = part.node.inputs if part.node.attrs["direction"] == "LT" else part.node.inputs[::-1]
    count = at_step(left, counters) if left.dtype.is_int else None
    if count is None or count.of is None or count.times != 1 or at_step(right, counters) is not None:
        return None
    if not isinstance(count.more, int) or right.rank or _reads(right, own):
        return None
    return li.convert(right, DType.i64) - count.more


def _reads(v: Value, own: set[Value]) -> bool:
    return any(r in own for n in topological([v.node]) for r in n.values)


# -- lists


def _written(result: Any, k: int) -> LoopList:
    if not isinstance(result, LoopList) or result.variable != k or result.write is None:
        raise NodeRefusedError(f"variable {k} of the loop is a list that a step exchanges or does not write")
    return result


@dataclass(frozen=True)
class _Out:
    """A list that the loop writes: the element of a step; `backward` from the end, `last`: always to one place."""

    value: Value
    backward: bool = False
    last: bool = False


def _out(before: TensorList, after: LoopList, counters: dict[Value, Counted], steps: Dim) -> _Out:
    assert after.write is not None
    index, value = after.write
    if before.rows is not None or before.items:
        raise NodeRefusedError("a list that the loop writes has elements before it")
    if index is None:  # at the end
        if before.count != 0:
            raise NodeRefusedError("a list that the loop makes longer is not empty before it")
        return _Out(value)
    place = at_step(index, counters)
    if place is None:
        raise NodeRefusedError("a list is written at a place that only a call knows")
    if place.of is None:
        if place.more != 0 or before.count != 1:
            raise NodeRefusedError(f"a list of {before.count} is written at place {place.more} in every step")
        return _Out(value, last=True)
    ends = dims.add(steps, -1)
    backward = (place.times, place.more) == (-1, ends)
    if not backward and (place.times, place.more) != (1, 0):
        raise NodeRefusedError("a list is written at places other than 0, 1, 2, ... or these from the end")
    if before.count != steps and not before.grows:
        raise NodeRefusedError(f"a list of {before.count} is written in {steps} steps")
    return _Out(value, backward)


# -- the scan


@dataclass(frozen=True)
class _Loop:
    """The parts of a loop: its tensors before it and after a step, and the lists that it writes."""

    states: dict[int, Value]
    init: dict[int, Value]
    values: list[Value]
    outs: list[_Out]
    own: set[Value]
    counters: dict[Value, Counted]
    end: _End

    def scan(self, step: Value) -> list[Any]:
        """What the tensors are after the loop, then the lists."""
        written = [o.value for o in self.outs]
        rows = rows_read([*self.values, *written], self.own, self.counters, self.end.steps)
        outer = self._from_outside({r.read for r in rows}, [*self.values, *written])
        kept = [o.value for o in self.outs if o.last]
        stacked = [o for o in self.outs if not o.last]
        states = list(self.states.values())
        held = len(states)

        def cell(carry: tuple[Value, ...], row: tuple[Value, ...], *more: Value) -> Any:
            *consts, now = more
            env = {step: li.convert(now, DType.i64), **dict(zip(states, carry[:held], strict=True))}
            env.update((v, _at(now, self.counters[v], v.dtype)) for v in states if v in self.counters)
            env.update((r.read, x) for r, x in zip(rows, row, strict=True))
            env.update(zip(outer, consts, strict=True))
            made = tuple(clone([*self.values, *kept, *(o.value for o in stacked)], env))
            return made[: held + len(kept)], made[held + len(kept) :]

        init = (*self.init.values(), *(li.zeros(v.shape, v.dtype) for v in kept))
        xs = tuple(r.first_axis() for r in rows)
        backward = any(r.backward for r in rows) or any(o.backward for o in stacked)
        if backward and self.end.count is not None:
            raise NodeRefusedError("a loop over rows from the last one has a number of steps that only a call knows")
        flags = [*(r.backward for r in rows), *(o.backward for o in stacked)]
        final, ys = li.scan(
            cell, init, xs, tuple(outer), length=self.end.steps, reverse=flags, count=self.end.count, with_step=True,
            name="body",
        )  # fmt: skip
        return [*final[:held], *self._lists(list(final[held:]), list(ys))]

    def _lists(self, finals: list[Value], ys: list[Value]) -> list[TensorList]:
        lists = []
        for o in self.outs:
            rows = li.expand_dims(finals.pop(0), 0) if o.last else ys.pop(0)
            lists.append(TensorList(o.value.dtype, rows.shape[0], rows=rows))
        return lists

    def _from_outside(self, rows: set[Value], values: Sequence[Value]) -> list[Value]:
        """Values around the loop that a step reads and a call computes: they are not made anew in it."""
        inside, called = {*self.own, *rows}, set[Value]()
        found: dict[Value, None] = {}
        for n in topological([v.node for v in values]):
            if any(v in rows for v in n.values):
                called.update(n.values)
                continue
            depends = n.op.name == "parameter" or any(v in called for v in n.inputs)
            if depends:
                called.update(n.values)
            if any(v in inside for v in n.inputs):
                inside.update(n.values)
                found.update((v, None) for v in n.inputs if v in called and v not in inside)
        found.update((v, None) for v in values if v in called and v not in inside)
        return [v for v in found if v.op != "parameter" and v.op != "dim"]


def _at(now: Value, counter: Counted, dtype: DType) -> Value:
    """What a counter is at a step, so that no state has to carry it."""
    first = (
        li.constant(counter.more, dtype) if isinstance(counter.more, int) else li.convert(li.size(counter.more), dtype)
    )
    return li.convert(now, dtype) * li.constant(counter.times, dtype) + first

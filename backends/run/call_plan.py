"""Calls with one combination of input shapes: what they share is found once, and kept for so many combinations.

A step of a small model is mostly Python's work: 18 of 33 us where 64 units run one step between calls of other
programs, which take 23 us with what is done here. So a call asks nothing twice, and compares memory as numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lstm_ir.backends.run import transfer
from lstm_ir.backends.run.held_state import HeldState, HeldValue
from lstm_ir.backends.run.helper_pool import Queue
from lstm_ir.backends.run.loaded import Runner
from lstm_ir.ir.errors import ValueRangeError
from lstm_ir.ir.signature import CallSizes, Entry

Array = np.ndarray[Any, Any]
Kinds = tuple[transfer.BorderType, ...]
Shapes = tuple[tuple[int, ...], ...]
_SHAPES = 64  # combinations of input shapes whose plans an entry keeps: a server with mixed lengths has as many
_SLOT_BYTES = 16 << 20  # of their reusable inputs, each below KEPT_BYTES: as many as 16 of the largest


class Border(NamedTuple):
    """What crosses a module's border in calls of one entry: inputs, outputs, and variables of state between them.

    queue: where its kernels publish their work, if they do. by_data: whether the data of a call decide what it does.
    """

    entry: Entry
    arguments: Kinds
    results: transfer.Results
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    held: HeldState
    move: transfer.Mover
    queue: Queue | None
    by_data: bool


class CallPlan:
    """Calls of one entry whose inputs have one combination of shapes. The session's lock is held in them.

    slots: inputs' memory that is written before each call, where that is faster than fresh memory.
    """

    __slots__ = (
        "_apart", "_border", "_contexts", "_count", "_finite", "_held", "_helpers", "_invoke", "_list", "_move",
        "_queue", "_reads", "_reads_more", "_results", "_view", "_vm", "_workers", "_writes", "_written", "bound",
        "slots",
    )  # fmt: skip

    def __init__(self, border: Border, vm: Any, runner: Runner, bound: CallSizes, slots: transfer.Slots | None) -> None:
        self._border, self._vm, self.bound, self.slots = border, vm, bound, slots
        self._contexts, self._workers, self._helpers = runner
        self._reads, self._writes, self._results = border.reads, border.writes, border.results
        self._held, self._move, self._queue = border.held, border.move, border.queue
        self._list, self._view = border.move.list, border.move.view
        self._invoke = self._helped if self._helpers else self._contexts.invoke
        self._written = tuple(range(len(self._results), len(self._results) + len(self._writes)))  # places of results
        self._count = len(self._results) + len(self._writes)  # of what the function gives
        self._reads_more = not set(self._reads) <= set(self._writes)  # than it writes
        self._finite = border.entry.watched() if border.entry.finite else None
        self._apart = False  # a call has shown that no result shares memory with another one, or with an input
        if slots is not None and not self._reads:
            self._bring(slots.arguments)

    def run(self, values: list[Array], keep: bool) -> dict[str, Any]:
        """The outputs of a call by name; on the device with `keep`. State changes only if the call succeeds."""
        finite, held, slots, move = self._finite, self._held, self.slots, self._move
        if finite is not None:
            self._need_finite(finite[0], values)
        if slots is not None and slots.large and all([move.lendable(values[i]) for i in slots.large]):
            slots = None
        if slots is None:
            arguments = move.arguments(values, self._border.arguments)
        else:
            arguments, views, places, _, _ = slots
            at = 0  # counted: an iterator over pairs takes twice as long
            for place in places:
                place[...] = values[at]
                at += 1
            if self._reads:
                arguments = self._list(at)
                for view in views:
                    arguments.push_ref(view)
        read: list[HeldValue] = []
        if self._reads:
            read = held.read(self._reads, self.bound.env)
            for view, _ in read:
                arguments.push_ref(view)
        if self._reads or slots is None:
            self._bring(arguments)
        results = self._list(self._count)
        self._invoke(self._vm, arguments, results)
        taken = None if self._apart else self._memory(values, slots, read)
        written = self._new_state(results, taken, slots)
        outputs = (move.kept if keep else move.arrays)(results, self._results, taken)
        if taken is not None:
            self._apart = not (taken.shared or self._border.by_data)
        if finite is not None:
            self._need_finite(finite[1], [outputs[n] for n, _ in self._results])
        if self._reads_more:
            held.keep(self._reads, read)
        if written:
            held.keep(self._writes, written)
        return outputs

    def _bring(self, arguments: Any) -> None:
        """What the function takes besides its inputs and state, where its kernels publish their work."""
        if self._queue is not None:
            self._queue.append_to(arguments, self._workers, self._helpers)

    def _memory(
        self, values: list[Array], slots: transfer.Slots | None, read: Sequence[HeldValue]
    ) -> transfer.TakenMemory:
        """What the results of a call may not share: its inputs and the state that it read."""
        inputs = self._move.extents(values) if slots is None else [transfer.extent(slots.block)]
        state = [self._held.extent(n, value) for n, value in zip(self._reads, read, strict=True)]
        return transfer.TakenMemory(inputs, [e for e in state if e is not None])

    def _new_state(
        self, results: Any, taken: transfer.TakenMemory | None, slots: transfer.Slots | None
    ) -> list[HeldValue]:
        """What the call writes; outputs may not share its memory."""
        env = self.bound.env
        out: list[HeldValue] = []
        for place in self._written:
            out.append((results.get_as_object(place, self._view), env))
        if taken is not None:
            for i, name in enumerate(self._writes):
                if taken.adds(self._held.extent(name, out[i])) and slots is not None:
                    out[i] = self._held.copied(name, out[i])
                    self.slots = None  # an input is the new state: from now on inputs have memory of their own
        return out

    def _helped(self, vm: Any, arguments: Any, results: Any) -> None:
        """As the contexts' `invoke`, with helpers."""
        queue = self._queue
        assert queue is not None
        try:
            queue.begin_call()
            self._contexts.invoke(vm, arguments, results)
        finally:
            queue.end_call()

    def _need_finite(self, watched: Sequence[tuple[int, str]], at: Sequence[Any]) -> None:
        for place, name in watched:
            a = np.asarray(at[place])
            if not np.isfinite(a.astype(np.float64)).all():
                step = self._held.scalar("step")
                when = "" if step is None else f" at step {step + 1}"
                bad = a.ravel()[~np.isfinite(a.astype(np.float64).ravel())][0]
                entry = self._border.entry.name
                raise ValueRangeError(f"{entry}: {name} is {bad}{when}; the state is that before the call")


def remember(plans: dict[Shapes, CallPlan], shapes: Shapes, plan: CallPlan) -> None:
    """Keep a plan. Where there are too many the oldest goes; where they hold too much, the oldest ones' buffers."""
    if shapes not in plans and len(plans) >= _SHAPES:
        del plans[next(iter(plans))]
    plans[shapes] = plan
    held = sum(p.slots.block.nbytes for p in plans.values() if p.slots is not None)
    for old, other in plans.items():
        if held <= _SLOT_BYTES:
            return
        if other.slots is not None and old != shapes:
            held -= other.slots.block.nbytes
            other.slots = None

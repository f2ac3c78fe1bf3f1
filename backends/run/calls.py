"""The calls of one session: they take turns, each over the state that the one before it wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from lstm_ir.backends import bindings, process
from lstm_ir.backends.run import freed_memory, runtime, transfer
from lstm_ir.backends.run.call_plan import Border, CallPlan, Shapes, remember
from lstm_ir.backends.run.held_state import HeldState
from lstm_ir.backends.run.loaded import ANY, Loaded
from lstm_ir.backends.run.pure_function import PREFIX, PureFunction
from lstm_ir.ir.arrays import kept, take
from lstm_ir.ir.errors import DeviceError
from lstm_ir.ir.flags import confirm_flags
from lstm_ir.ir.signature import Entry, Port, by_name, confirm, native

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Any]
Plans = dict[Shapes, CallPlan]


class SessionCalls:
    """What the calls of a session share: the loaded module, None once it is closed, its state, and their lock.

    owner: `session` or `executable`, for errors.
    """

    def __init__(self, loaded: Loaded, owner: str) -> None:
        self.loaded: Loaded | None = loaded
        self.lock = process.new_lock()
        self.held = HeldState(loaded.signature, loaded.initial, loaded.move, self.lock, owner)
        self.queue = loaded.queue()
        self._owner = owner

    def __reduce__(self) -> NoReturn:
        raise DeviceError(
            f"the {self._owner} cannot be copied or pickled: its memory is the device's; exe.session() makes another "
            "client of the module, li.export a package that another process loads, exe.save_state a file of its state"
        )

    def opened(self) -> Loaded:
        """The module; DeviceError where the session is closed. The caller holds the lock."""
        if self.loaded is None:
            raise DeviceError(f"the {self._owner} is closed")
        return self.loaded

    def close(self) -> None:
        """The state's buffers go, and the module. The caller holds the lock."""
        self.held.close()
        if self.queue is not None:
            self.queue.close()
        self.loaded = None


class Function:
    """One entry, ready to call: `f(x=a)` or `f({"input.1": a})` -> {name: ndarray}."""

    def __init__(self, entry: Entry, calls: SessionCalls, loaded: Loaded) -> None:
        self.entry, self._calls, self._vm = entry, calls, loaded.lookup(entry)
        self._runner, self.publishes = loaded.runner, loaded.publishes(entry.name)
        self._operations, self.on_cpu = loaded.operations, loaded.on_cpu
        self._taken = take if self.on_cpu else kept
        arguments = tuple(transfer.BorderType(p.type.dtype) for p in entry.inputs)
        results = tuple((p.name, transfer.BorderType(p.type.dtype)) for p in entry.outputs)
        queue = calls.queue if self.publishes else None
        state = entry.reads, entry.writes, calls.held
        self._border = Border(entry, arguments, results, *state, loaded.move, queue, loaded.by_data)
        self.plans: Plans = {}
        self.pure_plans: Plans = {}  # of calls as a function of state
        self.restarts = entry.restarts and bool(loaded.signature.state)
        self._has_keep = any(p.name == "keep" for p in entry.inputs)

    def pure(self) -> PureFunction:
        """The entry as a function of its state, which the caller keeps; CallError where it looks at more than that."""
        calls, of = self._calls, self._border
        with process.turn(calls.lock):
            loaded = calls.opened()
            signature, initial = loaded.signature, loaded.initial
        read = tuple(of.held.kind(n) for n in of.reads)
        written = tuple((PREFIX + n, of.held.kind(n)) for n in of.writes)
        border = of._replace(arguments=of.arguments + read, results=of.results + written, reads=(), writes=())

        def run(values: list[Array], shapes: Shapes) -> dict[str, Array]:
            with process.turn(calls.lock):
                calls.opened()
                plan = self.pure_plans.get(shapes)
                if plan is None:
                    plan = self._planned(self.pure_plans, border, values, shapes)
                return plan.run(values, False)

        return PureFunction(self.entry, signature, initial, run)

    def operations(self, arrays: Arrays) -> int | None:
        """How much a call with these arrays computes: additions and multiplications of products, and one for each
        element of another op; None where that is not known.
        """
        _, shapes = native(self.entry, arrays)
        return self._operations(self.entry.name, self.entry.bound(shapes).env)

    def _planned(self, plans: Plans, border: Border, values: list[Array], shapes: Shapes) -> CallPlan:
        """How calls with these shapes run. The caller holds the lock."""
        freed_memory.seen_shapes()
        bound = self.entry.bound(shapes[: len(self.entry.inputs)])
        empty = frozenset(n for n, size in bound.env.items() if size == 0)
        vm, runner = self._vm.get(empty, self._vm[ANY]), self._runner(self.entry.name, bound.env)
        slots = border.move.slots(values, border.arguments)
        made = CallPlan(border, vm, runner, bound, slots)
        remember(plans, shapes, made)
        return made

    @property
    def inputs(self) -> tuple[Port, ...]:
        """Names and types of what it takes."""
        return self.entry.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """Names and types of what it gives."""
        return self.entry.outputs

    def __call__(self, arrays: Arrays | None = None, /, *more: Any, keep: Any = False, **named: Any) -> dict[str, Any]:
        """The outputs by name, for inputs by name: keywords, or one mapping. CallError for arrays without names.

        keep: whether results stay on the device, as `DeviceArray`; an input of that name is one instead.
        """
        process.enter()
        if keep is not False:
            if self._has_keep:
                named["keep"], keep = keep, False
            elif not isinstance(keep, np.bool_):
                confirm_flags(f"{self.entry.name}: ", keep=keep)
        entry, calls = self.entry, self._calls
        given = named if arrays is None and not more else by_name(entry, (arrays, *more), named)
        values, shapes = native(entry, given, self._taken)
        plan = self.plans.get(shapes)
        bound = entry.bound(shapes) if plan is None else plan.bound
        if bound.checks:
            confirm(entry, bound, values)
        try:  # as `runtime.reporting`, which takes a microsecond
            with calls.lock:
                calls.opened()
                process.check()
                if self.restarts:
                    calls.held.restart(*entry.reads)
                    return {}
                if plan is None:
                    plan = self._planned(self.plans, self._border, values, shapes)
                return plan.run(values, bool(keep))
        except bindings.RAISED as e:
            if type(e) not in bindings.RAISED:
                process.hold_back()
                raise  # ours, or a signal handler's
            raise runtime.failure(e, entry.name) from e

"""A module loaded on a device, or on both devices of the processor: what sessions share.

The processor has two devices that run one module: `local-sync` in the caller's thread, `local-task` on IREE's
workers. Which of them a call takes follows from its sizes (`threads/choice.py`). Each is opened when a call first
takes it, over one copy of the weights; what the module computes from them is kept for each (`contexts.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lstm_ir.backends import bindings
from lstm_ir.backends.files import parameters
from lstm_ir.backends.queue import SERVE
from lstm_ir.backends.run import helper_pool, runtime, transfer
from lstm_ir.backends.run.contexts import Contexts
from lstm_ir.backends.run.threads.caller import may_schedule
from lstm_ir.backends.run.threads.choice import Choice, choose
from lstm_ir.ir.errors import PackageError
from lstm_ir.ir.signature import Entry, Signature
from lstm_ir.ir.work import CallWork

Array = np.ndarray[Any, Any]
Names = frozenset[str]
ANY: Names = frozenset()  # dimension names that are 0 in a function: none that it knows of
CALLER, WORKERS = "local-sync", "local-task"


class CallOptions(NamedTuple):
    """Which threads calls on the processor may use, and how."""

    schedule_caller: bool = True  # see `threads/caller.py`
    helpers: bool = True  # helper threads may take part
    always: bool = False  # they do, in calls of any size
    map_weights: bool = False  # they stay in the package's file, which nobody may write into


class Runner(NamedTuple):
    """Who runs a call: contexts of one device, and helper threads."""

    contexts: Contexts
    workers: int  # threads that share the work of a kernel
    helpers: int  # of them, those that take part in what the caller's thread runs


class Loaded:
    """Module, weights, devices, and what the module computed from the weights."""

    def __init__(
        self,
        signature: Signature,
        blob: bytes,
        weights: Mapping[str, Any],
        drivers: Sequence[str],
        initial: Mapping[str, Array],
        work: Mapping[str, CallWork],
        options: CallOptions,
    ) -> None:
        """`drivers`: the device, or those from which each call's sizes choose by `work` of its entry."""
        self.schedule_caller = may_schedule(options.schedule_caller)
        runtime.outlive_fork(self)
        self.signature, self.initial, self.blob = signature, initial, blob
        self.weights = parameters.check(weights, signature.weights, keep=options.map_weights)
        self._drivers, self._work = tuple(drivers), dict(work)
        self._options = options
        instance = runtime.instance()
        first = self._first()
        # The memory of one device of the processor is as good for the other.
        self.move = transfer.mover(runtime.device(first), first, stateful=bool(signature.state))
        with runtime.reporting(f"{signature.name}: not a module", PackageError):
            self.module = bindings.native().VmModule.copy_buffer(instance, blob)
        # The module imports what reads a buffer's data only where its own control flow depends on them.
        self.by_data = b"hal.buffer.load" in blob
        published = SERVE in self.module.function_names
        self.serve = self.module.lookup_function(SERVE) if published else None
        self._contexts: dict[str, Contexts] = {}
        self._lock = threading.Lock()
        self.contexts(first)

    @property
    def device(self) -> str:
        """Where calls run: `cpu` where their sizes choose."""
        chosen = self._constant()
        return chosen if chosen is not None else "cpu"

    def _first(self) -> str:
        """The device that is opened now."""
        return self._constant() or CALLER

    def _constant(self) -> str | None:
        """The device of all calls, where no size changes it."""
        if len(self._drivers) == 1:
            return self._drivers[0]
        if any(w.known() is None for w in self._work.values()) and runtime.threads() > 1:
            return None
        chosen = {self.choice(entry, {}).driver for entry in self._work}
        return chosen.pop() if len(chosen) == 1 else None

    def contexts(self, driver: str) -> Contexts:
        """Of the device with this name."""
        with self._lock:
            found = self._contexts.get(driver)
            if found is None:
                found = self._contexts[driver] = self._opened(driver)
            return found

    def _opened(self, driver: str) -> Contexts:
        rt, instance = bindings.native(), runtime.instance()
        with runtime.reporting(f"loading {self.signature.name}"):
            modules = [rt.create_hal_module(instance, runtime.device(driver))]
            if self.weights:
                modules.append(rt.create_io_parameters_module(instance, parameters.provider(self.weights)))
        waits = self.schedule_caller and driver == WORKERS
        return Contexts([*modules, self.module], self.signature.name, schedule=waits, own=driver == CALLER)

    @property
    def on_cpu(self) -> bool:
        """Calls run on the processor."""
        return all(d.partition(":")[0] in (CALLER, WORKERS) for d in self._drivers)

    def operations(self, entry: str, sizes: Mapping[str, int]) -> int | None:
        """How much a call with these sizes computes (`ir/operations.py`); None where that is not known."""
        work = self._work.get(entry)
        return None if work is None else work.at(sizes)

    def choice(self, entry: str, sizes: Mapping[str, int]) -> Choice:
        """Who runs a call with these sizes, and why."""
        if len(self._drivers) == 1:
            return Choice(self._drivers[0], 0, "the device that was asked for")
        work = self._work.get(entry)
        if work is None:
            return Choice(WORKERS, 0, "a package that does not say how much it computes")
        published = work.published if self._options.helpers else 0
        return choose(work.at(sizes), work.loops, published, runtime.threads(), always=self._options.always)

    def runner(self, entry: str, sizes: Mapping[str, int]) -> Runner:
        """Who runs a call with these sizes."""
        choice = self.choice(entry, sizes)
        workers = runtime.threads() if choice.driver == WORKERS else 1 + choice.helpers
        return Runner(self.contexts(choice.driver), workers, choice.helpers)

    @property
    def helps(self) -> bool:
        """Whether helpers take part in some calls."""
        some = any(w.published for w in self._work.values())
        return some and len(self._drivers) > 1 and self._options.helpers and runtime.threads() > 1

    def publishes(self, entry: str) -> bool:
        """Whether the entry's function takes what lets helpers take part."""
        work = self._work.get(entry)
        return self.serve is not None and (work is None or work.published > 0)

    def queue(self) -> helper_pool.Queue | None:
        """The queue of one session, where the module publishes its work to helpers."""
        if self.serve is None:
            return None
        assert isinstance(self.move, transfer.HostMover)
        return helper_pool.Queue(self._helper_context, self.serve, self.move, self.schedule_caller)

    def _helper_context(self) -> Any:
        return self.contexts(CALLER).first

    def lookup(self, entry: Entry) -> dict[Names, Any]:
        """The entry's function, and its variants by the dimension names that are 0 in them.

        Vulkan refuses dispatches with empty buffers, so a module may hold `main.empty.B.T` beside
        `main`: the same graph with B = T = 0 written into it, where IREE removes what is empty.
        """
        found = {ANY: self.module.lookup_function(entry.name)}
        if found[ANY] is None:
            raise PackageError(f"{self.signature.name}: the module has no function @{entry.name}")
        start = f"{entry.name}.empty."
        for name in self.module.function_names:
            if name.startswith(start):
                names = frozenset(name.removeprefix(start).split("."))
                found[names] = self.module.lookup_function(name)
        return found

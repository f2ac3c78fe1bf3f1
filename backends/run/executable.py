"""A compiled program: arrays by name in, arrays by name out, weights on the device."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from lstm_ir.backends import process
from lstm_ir.backends.files import state_file
from lstm_ir.backends.run import freed_memory, runtime
from lstm_ir.backends.run.by_name import Entries, FixedWeights, instead
from lstm_ir.backends.run.calls import Function, SessionCalls
from lstm_ir.backends.run.held_state import HeldState
from lstm_ir.backends.run.loaded import CALLER, WORKERS, CallOptions, Loaded
from lstm_ir.backends.targets import cpus
from lstm_ir.backends.targets.target import Target
from lstm_ir.ir.errors import CallError, DeviceError, PackageError, TargetError
from lstm_ir.ir.flags import confirm_flags
from lstm_ir.ir.signature import Port, Signature, call_values
from lstm_ir.ir.work import CallWork

if TYPE_CHECKING:
    from typing import Self

    from lstm_ir.backends.run.profile import Profile

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Any]


def _calls(entries: Iterable[str]) -> str:
    return " or ".join(f".entries[{n!r}](...)" for n in entries)


def _same(a: Array, b: Array) -> bool:
    """Whether two arrays are one to the bit, NaN too."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class Session:
    """State of one client over a loaded module. Calls from several threads take turns."""

    _what = "session"

    def __init__(self, loaded: Loaded) -> None:
        runtime.outlive_fork(self)
        self._calls = SessionCalls(loaded, self._what)
        self.entries = Entries({e.name: Function(e, self._calls, loaded) for e in loaded.signature.entries.values()})
        main = loaded.signature.main
        self._main = None if main is None else self.entries[main.name]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            written = instead(name, self.__dict__.get("entries", ()))
            raise AttributeError(f"the {self._what} has no attribute {name!r}{written}", name=name, obj=self)

    def __reduce__(self) -> NoReturn:
        self._calls.__reduce__()

    @property
    def state(self) -> HeldState:
        """Named state of this session, read and written by name.

        Empty for a program without any.
        """
        return self._calls.held

    def reset(self, *names: str) -> None:
        """Start these state variables again; all without names."""
        self._calls.held.reset(*names)

    @property
    def inputs(self) -> tuple[Port, ...]:
        """Of `main`, or of the only entry."""
        return self._entry().inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """Of `main`, or of the only entry."""
        return self._entry().outputs

    def _entry(self) -> Function:
        if self._main is None:
            raise CallError(f"no entry is called main; call {_calls(self.entries)}")
        return self._main

    def __call__(self, arrays: Arrays | None = None, /, *more: Any, **named: Any) -> dict[str, Any]:
        """`main`, or the only entry, called: outputs by name. keep=True: they stay on the device."""
        main = self._main if self._main is not None else self._entry()
        try:
            return main(arrays, *more, **named)
        except CallError as e:
            given = {*named, *(arrays if isinstance(arrays, Mapping) else ())} - {"keep"}
            takes = [n for n, f in self.entries.items() if given == {p.name for p in f.inputs}]
            if not takes or main.entry.name in takes:
                raise
            raise CallError(f"{e}; what was given fits {_calls(takes)}") from None

    def save_state(self, path: str | Path) -> None:
        """Write all state to a .safetensors file, in one step; calls wait until it is read.

        CallError for state that a call could not take: two sizes for one name.
        """
        state_file.write(path, self._calls.held.snapshot())

    def load_state(self, path: str | Path, *, strict: bool = True) -> None:
        """All state from a file of `save_state`; with strict=False that of the names that both have, the rest stays.

        The count `step` of a program that trains stays too, where the file lacks a trained weight or a moment of one.
        PackageError, and no change, if it does not fit, or has other arrays for what is a weight here and no state.
        """
        confirm_flags("load_state: ", strict=strict)
        arrays, where = state_file.read(path), str(path)
        self._need_own_weights(arrays, where)
        if strict:
            self._calls.held.update_all(arrays, where, "; load_state(path, strict=False) takes what both have")
        else:
            self._calls.held.update_shared(arrays, where)

    def _need_own_weights(self, arrays: Mapping[str, Array], where: str) -> None:
        """PackageError where a file of state has other arrays for weights, which no call of the module changes."""
        loaded = self._calls.loaded
        weights = {} if loaded is None else loaded.weights
        other = [n for n, a in arrays.items() if n in weights and not _same(a, weights[n])]
        if other:
            names = ", ".join(other[:3]) + (f" and {len(other) - 3} more" if len(other) > 3 else "")
            remedy = f"give the graph these values by li.with_weights(graph, {where!r}), before train_step or compile"
            raise PackageError(f"{where}: {names}: weights here, not state; {remedy}")

    def close(self) -> None:
        """Free the session's memory; later calls are errors. Results stay valid.

        In a forked child nothing is done: the memory is the parent's.
        """
        if process.forked():
            return
        with process.turn(self._calls.lock):
            self._calls.close()
            for f in self.entries.values():
                for plans in (f.plans, f.pure_plans):
                    plans.clear()  # their buffers, which no collector of Python's counts
            freed_memory.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Executable(Session):
    """A compiled program on a device; also the first session over it. `package`: the file that it was loaded from."""

    _what = "executable"
    package: Path | None = None
    digest: str | None = None  # of what that file holds

    def __init__(
        self,
        signature: Signature,
        blob: bytes,
        weights: Mapping[str, Any],
        target: Target,
        device: str | None = None,
        report: Any = None,
        *,
        driver: str | None = None,
        state: Mapping[str, Array] | None = None,
        work: Mapping[str, CallWork] | None = None,
        options: CallOptions | None = None,
    ) -> None:
        """Load `blob`; `device` as in `vulkan:1`, `driver` for local-sync or local-task.

        `state` holds what each state variable starts as. On the CPU the sizes of each call choose between the two
        drivers where no device is given and `work` says what entries compute.
        """
        drivers = _drivers(target, device if device is not None else driver, each_call=bool(work))
        self.signature, self.target, self.report = signature, target, report
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._opening, self._closed = process.new_lock(), False  # of sessions
        initial = {} if state is None else state
        how = CallOptions() if options is None else options
        with process.turn(process.new_lock()):
            loaded = Loaded(signature, blob, weights, drivers, initial, {} if work is None else work, how)
            super().__init__(loaded)
        self.device = loaded.device
        self.weights: Mapping[str, Array] = MappingProxyType(FixedWeights(loaded.weights, signature.state))

    @property
    def helped(self) -> bool:
        """Whether helper threads take part in calls."""
        loaded = self._calls.loaded
        return loaded is not None and loaded.helps

    def profile(self, entry: str, arrays: Arrays, flow: str | None = None) -> Profile:
        """Where the time of a call goes; `flow` as in `profile.profile`."""
        from lstm_ir.backends.run.profile import Profiled, profile  # calls do without

        called = self.entries[entry].entry
        values = call_values(called, arrays)
        with process.turn(self._calls.lock):
            loaded = self._calls.opened()
            env = called.bound(tuple(a.shape for a in values)).env
            values += self._calls.held.arrays(called.reads, env)
            device = loaded.choice(entry, env).driver
            blob, publishes = loaded.blob, self.entries[entry].publishes
        of = Profiled(blob, self.signature, self.weights, self.target.info.kind, device, entry, publishes)
        return profile(of, values, flow)

    def __str__(self) -> str:
        from lstm_ir.view.summary import executable_text  # who calls does without

        return executable_text(self.signature, str(self.target), self.device)

    def _repr_html_(self) -> str:
        from lstm_ir.view.notebook import executable_html  # of notebooks alone

        notes = list(getattr(self.report, "notes", ()))
        return executable_html(self.signature, str(self.target), self.device, self.weights, notes)

    def session(self) -> Session:
        """Another client of the same module and weights; sessions run beside each other.

        Its state starts as the program says: of a program that trains, untrained. `session.state.update(exe.state)`
        gives it the weights as trained so far.
        """
        with process.turn(self._opening):
            loaded = self._calls.loaded
            if self._closed or loaded is None:
                raise DeviceError("the executable is closed")
            made = Session(loaded)
            self._sessions.add(made)
            return made

    def close(self) -> None:
        """Close the executable and all its sessions; later calls are errors. Results stay valid. Memory that a CPU
        keeps for later calls is let go."""
        if process.forked():
            return
        with process.turn(self._opening):
            self._closed = True
            sessions = list(self._sessions)
        for s in sessions:
            s.close()
        super().close()


def _drivers(target: Target, asked: str | None, *, each_call: bool) -> tuple[str, ...]:
    """Of the device that was asked for, or both of the CPU, where each call may choose; TargetError where none runs."""
    if not target.drivers:
        raise TargetError(f"target {target} cannot run here: it has no runtime driver")
    on_cpu = target.info.kind == "cpu"
    if asked is None and on_cpu and each_call:
        drivers: tuple[str, ...] = (CALLER, WORKERS)
    else:
        drivers = (target.drivers[0] if asked is None or (on_cpu and asked == "cpu") else asked,)
    for where in drivers:
        if where.partition(":")[0] not in target.drivers:
            expected = " or ".join((*target.drivers, "cpu") if on_cpu else target.drivers)
            raise TargetError(f"device {where} does not run modules for {target}; expected {expected}")
    if on_cpu:
        why = cpus.refusal(target.info.triple, target.info.features)
        if why is not None:
            raise TargetError(f"a module for {target} cannot run here: {why}")
    return drivers

"""A compiled program: arrays by name in, arrays by name out, weights on the device."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from lstm_ir.backends import bindings, process
from lstm_ir.backends.files import state_file
from lstm_ir.backends.run import freed_memory, runtime, transfer
from lstm_ir.backends.run.by_name import Entries, FixedWeights, instead
from lstm_ir.backends.run.call_plan import CallPlan, Shapes, remember
from lstm_ir.backends.run.held_state import HeldState, HeldValue
from lstm_ir.backends.run.loaded import ANY, CALLER, WORKERS, CallOptions, Loaded, Runner
from lstm_ir.backends.run.pure_function import PureFunction
from lstm_ir.backends.targets import cpus
from lstm_ir.backends.targets.target import Target
from lstm_ir.ir.arrays import kept
from lstm_ir.ir.errors import CallError, DeviceError, PackageError, TargetError, ValueRangeError
from lstm_ir.ir.signature import Entry, Port, Signature, by_name, call_values, confirm, native
from lstm_ir.ir.work import CallWork

if TYPE_CHECKING:
    from typing import Self

    from lstm_ir.backends.run.profile import Profile

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Any]


class Function:
    """One entry, ready to call: `f(x=a)` or `f({"input.1": a})` -> {name: ndarray}."""

    def __init__(self, entry: Entry, session: Session, loaded: Loaded) -> None:
        self.entry, self._session, self._vm = entry, session, loaded.lookup(entry)
        self._runner, self.publishes = loaded.runner, loaded.publishes(entry.name)
        self._operations, self.on_cpu = loaded.operations, loaded.on_cpu
        self.arguments = tuple(transfer.BorderType(p.type.dtype) for p in entry.inputs)
        self.results = tuple(transfer.BorderType(p.type.dtype) for p in entry.outputs)
        self.plans: dict[Shapes, CallPlan] = {}
        self.pure_plans: dict[Shapes, CallPlan] = {}  # of calls as a function of state
        self._names = tuple(p.name for p in entry.outputs)
        self.given = len(self.results) + len(entry.writes)  # by the VM function
        self.written = tuple(enumerate(entry.writes, len(self.results)))  # places of results, and variables
        self.reads_more = not set(entry.reads) <= set(entry.writes)  # than it writes
        self.restarts = entry.restarts and bool(loaded.signature.state)
        self.steps = bool(entry.reads or entry.writes or entry.finite)
        self.watched = entry.watched()
        self._has_keep = any(p.name == "keep" for p in entry.inputs)

    def pure(self) -> PureFunction:
        """The entry as a function of its state, which the caller keeps; CallError where it looks at more than that."""
        return self._session._pure(self)

    def operations(self, arrays: Arrays) -> int | None:
        """How much a call with these arrays computes: additions and multiplications of products, and one for each
        element of another op; None where that is not known.
        """
        values = native(self.entry, arrays)
        return self._operations(self.entry.name, self.entry.bound(tuple([a.shape for a in values])).env)

    def plan(self, shapes: Shapes) -> CallPlan:
        """How calls with these shapes run."""
        freed_memory.seen_shapes()
        bound = self.entry.bound(shapes)
        empty = frozenset(n for n, size in bound.env.items() if size == 0)
        vm = self._vm.get(empty, self._vm[ANY])
        return CallPlan(vm, self._runner(self.entry.name, bound.env), None, bound)

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
        if keep is not False and self._has_keep:
            named["keep"], keep = keep, False
        given = named if arrays is None and not more else by_name(self.entry, (arrays, *more), named)
        values = native(self.entry, given) if self.on_cpu else native(self.entry, given, kept)
        shapes = tuple([a.shape for a in values])
        plan = self.plans.get(shapes)
        bound = self.entry.bound(shapes) if plan is None else plan.bound
        if bound.checks:
            confirm(self.entry, bound, values)
        try:  # as `runtime.reporting`, which takes a microsecond
            results = self._session._run(self, values, shapes, plan, bool(keep))
        except bindings.RAISED as e:
            if type(e) not in bindings.RAISED:
                process.hold_back()
                raise  # ours, or a signal handler's
            raise runtime.failure(e, self.entry.name) from e
        return dict(zip(self._names, results, strict=True))


def _calls(entries: Iterable[str]) -> str:
    return " or ".join(f".entries[{n!r}](...)" for n in entries)


def _same(a: Array, b: Array) -> bool:
    """Whether two arrays are one to the bit, NaN too."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class Session:
    """State of one client over a loaded module. Calls from several threads take turns."""

    _what = "session"

    def __init__(self, loaded: Loaded) -> None:
        self._loaded: Loaded | None = loaded
        runtime.outlive_fork(self)
        self._lock = process.new_lock()
        self._held = HeldState(loaded.signature, loaded.initial, loaded.move, self._lock, self._what)
        self._queue = loaded.queue()
        self.entries = Entries({e.name: Function(e, self, loaded) for e in loaded.signature.entries.values()})
        main = loaded.signature.main
        self._main = None if main is None else self.entries[main.name]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            written = instead(name, self.__dict__.get("entries", ()))
            raise AttributeError(f"the {self._what} has no attribute {name!r}{written}", name=name, obj=self)

    def __reduce__(self) -> NoReturn:
        raise DeviceError(
            f"the {self._what} cannot be copied or pickled: its memory is the device's; exe.session() makes another "
            "client of the module, li.export a package that another process loads, exe.save_state a file of its state"
        )

    @property
    def state(self) -> HeldState:
        """Named state of this session, read and written by name.

        Empty for a program without any.
        """
        return self._held

    def reset(self, *names: str) -> None:
        """Start these state variables again; all without names."""
        self._held.reset(*names)

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

    def _run(
        self, f: Function, values: list[Array], shapes: Shapes, plan: CallPlan | None, keep: bool = False
    ) -> list[Any]:
        # Calls of one session take turns: each may read the state that the one before it wrote.
        with self._lock:
            loaded = self._loaded
            if loaded is None:
                raise DeviceError(f"the {self._what} is closed")
            process.check()
            move = loaded.move
            results = move.results(f.given)
            if plan is None:
                plan = f.plan(shapes)
                slots = None if f.restarts else move.slots(values, f.arguments)
                if slots is not None:
                    if not f.steps:
                        self._bring(f, plan.runner, slots.arguments)
                    plan = plan._replace(slots=slots)
                remember(f.plans, shapes, plan)
            slots = plan.slots
            if f.restarts:
                self._held.restart(*f.entry.reads)
                return []
            if f.steps:
                return self._step(f, plan, values, shapes, results, keep)
            if slots and slots.large and all(move.lendable(values[i]) for i in slots.large):
                slots = None
            if slots is None:
                given, arguments = values, move.arguments(values, f.arguments)
                self._bring(f, plan.runner, arguments)
                self._invoke(plan, arguments, results)
            else:
                given = [slots.block]
                for place, a in zip(slots.places, values, strict=True):
                    place[...] = a
                self._invoke(plan, slots.arguments, results)
            return (move.kept if keep else move.arrays)(results, f.results, given)

    def _pure(self, f: Function) -> PureFunction:
        with process.turn(self._lock):
            if self._loaded is None:
                raise DeviceError(f"the {self._what} is closed")
            signature, initial = self._loaded.signature, self._loaded.initial
        kinds = tuple(
            tuple(transfer.BorderType(signature.state[n].type.dtype) for n in names)
            for names in (f.entry.reads, f.entry.writes)
        )
        arguments, results = f.arguments + kinds[0], f.results + kinds[1]

        def run(values: list[Array], shapes: Shapes) -> list[Array]:
            with process.turn(self._lock):
                loaded = self._loaded
                if loaded is None:
                    raise DeviceError(f"the {self._what} is closed")
                plan = f.pure_plans.get(shapes)
                move = loaded.move
                if plan is None:
                    plan = f.plan(shapes[: len(f.arguments)])._replace(slots=move.slots(values, arguments))
                    remember(f.pure_plans, shapes, plan)
                slots, made = plan.slots, move.results(len(results))
                given = move.arguments(values, arguments) if slots is None else move.taking(slots, values)
                self._bring(f, plan.runner, given)
                self._invoke(plan, given, made)
                return move.arrays(made, results, values if slots is None else [slots.block])

        return PureFunction(f.entry, signature, initial, run)

    def _bring(self, f: Function, runner: Runner, arguments: Any) -> None:
        """What a function takes besides its inputs and state, where its kernels publish their work."""
        if f.publishes:
            assert self._queue is not None
            self._queue.append_to(arguments, runner.workers, runner.helpers)

    def _invoke(self, plan: CallPlan, arguments: Any, results: Any) -> None:
        contexts, queue = plan.runner.contexts, self._queue
        if queue is None or not plan.runner.helpers:
            contexts.invoke(plan.vm, arguments, results)
            return
        try:
            queue.begin_call()
            contexts.invoke(plan.vm, arguments, results)
        finally:
            queue.end_call()

    def _step(
        self, f: Function, plan: CallPlan, values: list[Array], shapes: Shapes, results: Any, keep: bool
    ) -> list[Any]:
        """A call that reads or writes state, which changes only if the call succeeds."""
        assert self._loaded is not None
        move, entry, held, slots, env = self._loaded.move, f.entry, self._held, plan.slots, plan.bound.env
        if entry.finite:
            self._need_finite(entry, f.watched[0], values)
        arguments = move.arguments(values, f.arguments) if slots is None else move.taking(slots, values)
        # Loops, not comprehensions: a comprehension is a function that is made and called, here with cold caches.
        taken = [slots.block] if slots is not None else list(values)
        read = held.read(entry.reads, env)
        written: list[HeldValue] = []
        lent: list[int] = []
        for value in read:
            arguments.push_ref(value.view)
            if value.memory is not None:
                taken.append(value.memory)
        self._bring(f, plan.runner, arguments)
        self._invoke(plan, arguments, results)
        for place, name in f.written:
            value = held.of(name, results.get_as_object(place, move.view), env)
            if value.memory is not None:
                if slots is not None and np.may_share_memory(value.memory, slots.block):
                    lent.append(len(written))
                taken.append(value.memory)
            written.append(value)
        outputs: list[Any] = (move.kept if keep else move.arrays)(results, f.results, taken)
        if lent:  # the module gives an input as the new state: its inputs have buffers of their own from now on
            for i in lent:
                written[i] = held.copied(entry.writes[i], written[i])
            remember(f.plans, shapes, plan._replace(slots=None))
        if entry.finite:
            self._need_finite(entry, f.watched[1], outputs)
        if f.reads_more:
            held.keep(entry.reads, read)
        held.keep(entry.writes, written)
        return outputs

    def _need_finite(self, entry: Entry, watched: Sequence[tuple[int, str]], at: list[Any]) -> None:
        for place, name in watched:
            a = np.asarray(at[place])
            if not np.isfinite(a.astype(np.float64)).all():
                step = self._held.scalar("step")
                when = "" if step is None else f" at step {step + 1}"
                bad = a.ravel()[~np.isfinite(a.astype(np.float64).ravel())][0]
                raise ValueRangeError(f"{entry.name}: {name} is {bad}{when}; the state is that before the call")

    def save_state(self, path: str | Path) -> None:
        """Write all state to a .safetensors file, in one step; calls wait until it is read.

        CallError for state that a call could not take: two sizes for one name.
        """
        state_file.write(path, self._held.snapshot())

    def load_state(self, path: str | Path, *, strict: bool = True) -> None:
        """All state from a file of `save_state`; with strict=False that of the names that both have, the rest stays.

        The count `step` of a program that trains stays too, where the file lacks a trained weight or a moment of one.
        PackageError, and no change, if it does not fit, or has other arrays for what is a weight here and no state.
        """
        if not isinstance(strict, bool):
            raise CallError(f"load_state: strict is {strict!r:.80}; expected True or False")
        arrays, where = state_file.read(path), str(path)
        self._need_own_weights(arrays, where)
        if strict:
            self._held.update_all(arrays, where, "; load_state(path, strict=False) takes what both have")
        else:
            self._held.update_shared(arrays, where)

    def _need_own_weights(self, arrays: Mapping[str, Array], where: str) -> None:
        """PackageError where a file of state has other arrays for weights, which no call of the module changes."""
        weights = {} if self._loaded is None else self._loaded.weights
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
        with process.turn(self._lock):
            self._held.close()
            for f in self.entries.values():
                for plans in (f.plans, f.pure_plans):
                    plans.clear()  # their buffers, which no collector of Python's counts
            freed_memory.release()
            if self._queue is not None:
                self._queue.close()
            self._loaded = None

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
        loaded = self._loaded
        return loaded is not None and loaded.helps

    def profile(self, entry: str, arrays: Arrays, flow: str | None = None) -> Profile:
        """Where the time of a call goes; `flow` as in `profile.profile`."""
        from lstm_ir.backends.run.profile import Profiled, profile  # calls do without

        called = self.entries[entry].entry
        values = call_values(called, arrays)
        with process.turn(self._lock):
            if self._loaded is None:
                raise DeviceError("the executable is closed")
            env = called.bound(tuple(a.shape for a in values)).env
            values += self._held.arrays(called.reads, env)
            device = self._loaded.choice(entry, env).driver
            blob, publishes = self._loaded.blob, self.entries[entry].publishes
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
            loaded = self._loaded
            if self._closed or loaded is None:
                raise DeviceError("the executable is closed")
            made = Session(loaded)
            self._sessions.add(made)
            return made

    def close(self) -> None:
        """Close the executable and all its sessions; later calls are errors. Results stay valid. Memory that a CPU
        keeps for later calls, 256 MiB at most or one larger result, is let go."""
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
            expected = " or ".join(target.drivers)
            raise TargetError(f"device {where} does not run modules for {target}; expected {expected}")
    if on_cpu:
        why = cpus.refusal(target.info.triple, target.info.features)
        if why is not None:
            raise TargetError(f"a module for {target} cannot run here: {why}")
    return drivers

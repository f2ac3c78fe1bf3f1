"""`li.Sessions`: the state of many clients over one executable, their calls gathered into one.

    session(x=a) (any thread) ─> its lane ─> Scheduler ─> state of each session beside its inputs ─> Rows.merge
      ─> one call of the entry as a function of its state ─> Rows.split ─> outputs to callers, new state to sessions

Each session owns its arrays. So a session starts from what the program says, never from what another has left, and
what a closed session held is gone. State changes when a call has succeeded, not before. Reads and writes of state
stand in the session's lane as its calls do, so they happen between two of them.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from lstm_ir.backends.run.pure_function import PREFIX, PureFunction
from lstm_ir.ir import state_values
from lstm_ir.ir.called import told
from lstm_ir.ir.errors import BusyError, CallError, UnknownSessionError
from lstm_ir.ir.signature import Entry
from lstm_ir.serving.batcher import WORDS, Outputs, limits, resolve_jobs, seconds, whole
from lstm_ir.serving.owner import SchedulerOwner
from lstm_ir.serving.row_check import confirm_rows
from lstm_ir.serving.rows import Prepared, Rows
from lstm_ir.serving.scheduler import Job, Scheduler
from lstm_ir.serving.session import Action, ClientSession, Name, SessionStep

Array = np.ndarray[Any, Any]
_CHARACTERS = 128  # of a session's name


class Sessions(SchedulerOwner):
    """Sessions of one executable whose program keeps state, at most `max_sessions` at once."""

    @told({**WORDS, "ttl": "idle_timeout, seconds", "max_count": "max_sessions"}, "Sessions")
    def __init__(
        self,
        exe: Any,
        *,
        entry: str | None = None,
        max_sessions: int = 1000,
        idle_timeout: float | None = 600.0,
        batch: str = "B",
        time: str = "T",
        lengths: str | None = None,
        outputs: Sequence[str] | None = None,
        max_batch: int = 64,
        max_delay: float = 0.001,
        max_waiting: int = 1024,
        pad: bool = True,
        check: bool = True,
    ) -> None:
        """`exe`: an executable whose state has the size `batch`; `entry` reads and writes it, by default `step`.

        idle_timeout: seconds after which a session that asks for nothing is closed; None: never. The others are those
        of `Batcher`. CallError for an entry whose sessions cannot share a call.
        """
        limits(max_batch, max_delay, max_waiting)
        whole("max_sessions", max_sessions)
        if idle_timeout is not None:
            seconds("idle_timeout", idle_timeout)
        function = _stateful(exe, entry)
        pure: PureFunction = function.pure()
        inputs = Rows(function.entry, batch, time, lengths, outputs)
        written = [PREFIX + n for n in function.entry.writes]
        rows = Rows(pure.entry, batch, time, lengths, [*inputs.wanted, *written])
        for name in function.entry.reads:
            if batch not in pure.state[name].type.names:
                raise CallError(
                    f"{function.entry.name}: state {name}: {pure.state[name].type} has no axis of size {batch}, "
                    "so it is not that of one session"
                )
        if not (pad and rows.pads):
            rows.without_padding()
            inputs.without_padding()
        if check:
            confirm_rows(rows, pure)
        self._keeper = _Keeper(pure, inputs, rows, function.entry, max_batch, max_sessions, idle_timeout)
        scheduler = Scheduler(
            self._keeper.run, "sessions", max_rows=max_batch, max_delay=max_delay, max_waiting=max_waiting,
            tidy=self._keeper.evict,
        )  # fmt: skip
        self._keeper.scheduler = scheduler
        super().__init__(inputs, scheduler)

    @property
    def evicted(self) -> int:
        """Sessions that were closed since they asked for nothing."""
        return self._keeper.evicted

    def __len__(self) -> int:
        return len(self._keeper.open)

    def open(self, name: Name | None = None, *, restart: bool = False) -> ClientSession:
        """A session that starts as the program says; without a name it gets a number.

        restart: one that is open under this name is closed. CallError for a name that is taken, BusyError where as
        many are open as may.
        """
        return self._keeper.add(name, restart)

    def get(self, name: Name) -> ClientSession:
        """The session that is open under this name; UnknownSessionError where none is."""
        return self._keeper.find(name)

    def has(self, name: Name) -> bool:
        """Whether a session is open under this name."""
        return name in self._keeper.open

    def close(self) -> None:
        """Take no more calls; come back when all that were accepted have their results."""
        super().close()
        for session in list(self._keeper.open.values()):
            self._keeper.remove(session, "all were closed")


class _Keeper:
    """The open sessions, and what the worker does for them."""

    def __init__(
        self, pure: PureFunction, inputs: Rows, rows: Rows, entry: Entry, max_batch: int, max_sessions: int,
        idle_timeout: float | None,
    ) -> None:  # fmt: skip
        self.inputs, self.evicted = inputs, 0
        self.open: OrderedDict[Name, ClientSession] = OrderedDict()  # the one used longest ago is first
        self.scheduler: Scheduler  # once there is one
        self._pure, self._rows, self._max_batch, self._entry = pure, rows, max_batch, entry
        self._max_sessions, self._idle_timeout = max_sessions, idle_timeout
        self._variables = {n: pure.state[n] for n in dict.fromkeys((*entry.reads, *entry.writes))}
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def add(self, name: Name | None, restart: bool) -> ClientSession:
        if name is not None:
            _named(name)
        self.scheduler.need_open()
        self.evict()
        with self._lock:
            if name is None:
                name = next(n for n in self._numbers if n not in self.open)
            before = self.open.get(name)
            if before is not None and not restart:
                raise CallError(f"session {name!r} is open already")
            if before is None and len(self.open) >= self._max_sessions:
                raise BusyError(f"{len(self.open)} sessions are open, max_sessions; no more are taken now")
            if before is not None:
                self._drop(before, "another was begun under its name")
            made = self.open[name] = ClientSession(name, self)
            return made

    def find(self, name: Name) -> ClientSession:
        with self._lock:
            found = self.open.get(name)
        if found is None:
            raise UnknownSessionError(f"session {str(name)[:_CHARACTERS]!r} is not open")
        return found

    def remove(self, session: ClientSession, why: str) -> None:
        with self._lock:
            self._drop(session, why)

    def _drop(self, session: ClientSession, why: str) -> None:
        if session.gone is None:
            session.gone = why
            if self.open.get(session.name) is session:
                del self.open[session.name]
        if not session.lane:
            session.held = None

    def evict(self) -> None:
        """Close what has been idle for too long."""
        if self._idle_timeout is None:
            return
        with self._lock:
            until = time.monotonic() - self._idle_timeout
            late = list(itertools.takewhile(lambda s: s.used <= until, self.open.values()))
            for session in late:
                if not session.lane:
                    self._drop(session, f"it was idle for {self._idle_timeout:g} s")
                    self.evicted += 1

    def prepare(self, arrays: Mapping[str, Any]) -> Prepared:
        return self.inputs.prepare(arrays)

    def submit(self, work: SessionStep | Action, until: float | None) -> Future[Any]:
        session = work.session
        if isinstance(work, SessionStep):
            job = Job(work, work.inputs.key, work.inputs.rows, session.lane, until)
        else:
            job = Job(work, work, self._max_batch, session.lane, until, counted=False)  # shares a call with nothing
        with self._lock:
            if session.gone is not None:
                raise UnknownSessionError(f"session {session.name!r} is not open: {session.gone}")
            self._touch(session)
            self.scheduler.submit(job)
        return job.future

    def _touch(self, session: ClientSession) -> None:
        session.used = time.monotonic()
        if self.open.get(session.name) is session:
            self.open.move_to_end(session.name)

    def checked(self, arrays: Mapping[str, Any], where: str) -> dict[str, Array]:
        return state_values.whole(self._variables, arrays, where, [self._variables])

    def snapshot(self, session: ClientSession) -> dict[str, Array]:
        if session.held is None:
            return self._start({self._rows.batch: 1})
        return {n: a.copy() for n, a in session.held.items()}

    def _start(self, sizes: Mapping[str, int]) -> dict[str, Array]:
        return {n: self._pure.start(n, sizes) for n in self._variables}

    def run(self, jobs: list[Job]) -> None:
        """For the worker: one action, or calls that share one."""
        work = jobs[0].payload
        if isinstance(work, Action):
            resolve_jobs(jobs, lambda _: [work.run()])
        else:
            resolve_jobs(jobs, self._step)
        with self._lock:
            for job in jobs:
                session = job.payload.session
                self._touch(session)
                if session.gone is not None and len(session.lane) <= 1:
                    session.held = None

    def _step(self, jobs: Sequence[Job]) -> list[Outputs]:
        steps: list[SessionStep] = [j.payload for j in jobs]
        before = [self._before(s) for s in steps]
        requests = [self._whole(s.inputs, state) for s, state in zip(steps, before, strict=True)]
        results = self._rows.split(self._pure(self._rows.merge(requests)), requests)
        outputs = []
        for step, state, found in zip(steps, before, results, strict=True):
            new = {n: found[PREFIX + n] for n in self._entry.writes}
            step.session.held = state | new
            outputs.append({n: found[n] for n in self.inputs.wanted})
        return outputs

    def _before(self, step: SessionStep) -> dict[str, Array]:
        """The session's state, or what it starts as with the sizes of its first call."""
        if step.session.held is not None:
            return step.session.held
        shapes = tuple([a.shape for a in step.inputs.values])
        return self._start(self._entry.bound(shapes).env)

    def _whole(self, inputs: Prepared, state: Mapping[str, Array]) -> Prepared:
        """Inputs and state as one request; CallError where the sizes of the state are others than the call's."""
        values = [*inputs.values, *(state[n] for n in self._entry.reads)]
        self._pure.entry.bound(tuple([a.shape for a in values]))
        return Prepared(values, inputs.rows, inputs.steps, inputs.key)


def _stateful(exe: Any, entry: str | None) -> Any:
    """The entry of an executable that reads and writes state."""
    entries = getattr(exe, "entries", None)
    if entries is None:
        raise CallError(f"sessions take an executable, got {type(exe).__name__}")
    if entry is not None:
        found = entries[entry]
        if not (found.entry.reads and found.entry.writes):
            raise CallError(f"{entry}: it does not keep state from call to call; li.Batcher serves it")
        return found
    known = steps(exe)
    if len(known) != 1 and "step" not in known:
        kept = f"there are {', '.join(known)}" if known else "there is none; li.Batcher serves such programs"
        raise CallError(f"sessions take the entry that reads and writes state: {kept}")
    return entries["step" if "step" in known else known[0]]


def steps(exe: Any) -> list[str]:
    """Names of the entries that read and write state."""
    return [n for n, f in exe.entries.items() if f.entry.reads and f.entry.writes]


def _named(name: object) -> None:
    text = isinstance(name, str) and 0 < len(name) <= _CHARACTERS and name.isprintable()
    number = isinstance(name, int) and not isinstance(name, bool) and 0 <= name < 2**64
    if not (text or number):
        what = f"{_CHARACTERS} characters at most, or a number from 0 to 2^64 - 1"
        raise CallError(f"a session's name is {str(name)[:_CHARACTERS]!r}; expected {what}")

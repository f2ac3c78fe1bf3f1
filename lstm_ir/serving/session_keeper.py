"""The open sessions of `li.Sessions`, and what its worker does for them."""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np

from lstm_ir.backends.run.pure_function import PREFIX, PureFunction
from lstm_ir.ir import state_values
from lstm_ir.ir.errors import BusyError, CallError, PackageError, UnknownSessionError
from lstm_ir.ir.signature import Entry, Port, bind_dims
from lstm_ir.serving.batcher import Outputs, resolve_jobs
from lstm_ir.serving.rows import Prepared, Rows
from lstm_ir.serving.scheduler import Job, Scheduler
from lstm_ir.serving.session import Action, KeptSession, Name, SessionStep, Unnamed, go_on_from

Array = np.ndarray[Any, Any]
_CHARACTERS = 128  # of a session's name


class SessionKeeper:
    """Sessions by name; `session.Keeper` is what a session sees of it."""

    def __init__(
        self, pure: PureFunction, inputs: Rows, rows: Rows, entry: Entry, max_batch: int, max_sessions: int,
        idle_timeout: float | None,
    ) -> None:  # fmt: skip
        self.inputs, self.evicted = inputs, 0
        self.open: OrderedDict[Name, KeptSession] = OrderedDict()  # the one used longest ago is first
        self.scheduler: Scheduler  # once there is one
        self.pure, self._rows, self._max_batch, self._entry = pure, rows, max_batch, entry
        self._max_sessions, self._idle_timeout = max_sessions, idle_timeout
        self._variables = {n: pure.state[n] for n in dict.fromkeys((*entry.reads, *entry.writes))}
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def add(self, name: Name | None, restart: bool) -> KeptSession:
        """What `Sessions.open` gives."""
        if name is not None:
            _named(name)
        self.scheduler.need_open()
        self.evict()
        with self._lock:
            if name is None:
                name = Unnamed(next(self._numbers))
            before = self.open.get(name)
            if before is not None and not restart:
                raise CallError(f"session {name!r} is open already")
            if before is not None:
                self._drop(before, "another was begun under its name")
            return self._made(name)

    def _made(self, name: Name, *, begun: bool = True) -> KeptSession:
        if len(self.open) >= self._max_sessions:
            raise BusyError(f"{len(self.open)} sessions are open, max_sessions; no more are taken now")
        made = self.open[name] = KeptSession(name, begun=begun)
        return made

    def step(
        self, name: Name, inputs: Prepared, until: float | None, begins: bool, ends: bool,
        confirm: Callable[[Outputs], None] | None,
    ) -> Future[Outputs]:  # fmt: skip
        """What `Sessions.step` gives."""
        if not begins:
            return self.submit(SessionStep(self.find(name), inputs, False, ends, confirm), until)
        return self._begin(name, lambda session: SessionStep(session, inputs, True, ends, confirm), until)

    def put(self, name: Name, held: dict[str, Array]) -> Future[None]:
        """What `put_state` gives."""
        return self._begin(name, lambda session: Action(session, partial(go_on_from, session, held), begins=True), None)

    def _begin(
        self, name: Name, work: Callable[[KeptSession], SessionStep | Action], until: float | None
    ) -> Future[Any]:
        """Queue what the session of this name begins with; one that is not open is opened."""
        _named(name)
        self.scheduler.need_open()
        self.evict()
        with self._lock:  # from the look whether it is open to the work: nothing closes it between
            session = self.open.get(name) or self._made(name, begun=False)
            try:
                return self._queue(work(session), until)
            except Exception:
                self._forget(session)
                raise

    def _forget(self, session: KeptSession) -> None:
        """Close what has not begun, or has ended, and has nothing left that could begin it."""
        if not session.lane and not session.begun:
            self._drop(session, "its start failed, or it has ended")

    def find(self, name: Name) -> KeptSession:
        """The session that is open under this name; UnknownSessionError where none is."""
        with self._lock:
            found = self.open.get(name)
        if found is None:
            raise UnknownSessionError(f"session {str(name)[:_CHARACTERS]!r} is not open")
        return found

    def remove(self, session: KeptSession, why: str) -> None:
        """Close it; its later calls are told why."""
        with self._lock:
            self._drop(session, why)

    def _drop(self, session: KeptSession, why: str) -> None:
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

    def prepare(self, arrays: Mapping[str, Any], *, copied: bool = False) -> Prepared:
        """As `Rows.prepare` of the inputs of a call."""
        return self.inputs.prepare(arrays, copied=copied)

    def submit(self, work: SessionStep | Action, until: float | None) -> Future[Any]:
        """Queue the work, behind what its session has asked for before."""
        with self._lock:
            return self._queue(work, until)

    def _queue(self, work: SessionStep | Action, until: float | None) -> Future[Any]:
        session = work.session
        if session.gone is not None:
            raise UnknownSessionError(f"session {session.name!r} is not open: {session.gone}")
        if isinstance(work, SessionStep):
            job = Job(work, work.inputs.key, work.inputs.rows, session.lane, until, owner=session)
        else:  # it shares a call with nothing
            job = Job(work, work, self._max_batch, session.lane, until, counted=False, owner=session)
        self._touch(session)
        self.scheduler.submit(job)
        return job.future

    def _touch(self, session: KeptSession) -> None:
        session.used = time.monotonic()
        if self.open.get(session.name) is session:
            self.open.move_to_end(session.name)

    def checked(self, arrays: Mapping[str, Any], where: str) -> dict[str, Array]:
        """Copies of arrays that are a whole state; PackageError for others."""
        held = state_values.whole(self._variables, arrays, where, [self._variables])
        if self._sizes(held)[self._rows.batch] == 0:
            raise PackageError(f"{where}: it has no rows: {self._rows.batch} is 0, which no call fits")
        return held

    def reach_of(self, held: Mapping[str, Array]) -> tuple[int, int]:
        """The rows of a whole state, and its steps, 0 where time is no size of it."""
        sizes = self._sizes(held)
        return sizes[self._rows.batch], sizes.get(self._rows.time, 0)

    def _sizes(self, held: Mapping[str, Array]) -> dict[str, int]:
        ports = [Port(n, v.type) for n, v in self._variables.items()]
        return bind_dims(ports, {n: a.shape for n, a in held.items()})

    def snapshot(self, session: KeptSession) -> dict[str, Array]:
        """Copies of its state; before the first call, that of one row."""
        if session.held is None:
            return self._start({self._rows.batch: 1})
        return {n: a.copy() for n, a in session.held.items()}

    def _start(self, sizes: Mapping[str, int]) -> dict[str, Array]:
        return {n: self.pure.start(n, sizes) for n in self._variables}

    def run(self, jobs: list[Job]) -> None:
        """For the worker: one action, or calls that share one."""
        able = []
        for job in jobs:
            session = job.payload.session
            if session.begun or job.payload.begins:
                able.append(job)
            else:  # it was queued behind a start that has failed, or behind the end
                why = "its start failed, or it has ended"
                job.future.set_exception(UnknownSessionError(f"session {session.name!r} is not open: {why}"))
        if not able:
            return
        work = able[0].payload
        resolve_jobs(able, (lambda _: [work.run()]) if isinstance(work, Action) else self._step)

    def settled(self, jobs: list[Job]) -> None:
        """For the worker: these jobs are over, whether they were run or not."""
        with self._lock:
            for job in jobs:
                self._touch(job.owner)
                self._forget(job.owner)
                if job.owner.gone is not None and not job.owner.lane:
                    job.owner.held = None

    def _step(self, jobs: Sequence[Job]) -> list[Outputs | Exception]:
        steps: list[SessionStep] = [j.payload for j in jobs]
        before = [self._before(s) for s in steps]
        requests = [self._whole(s.inputs, state) for s, state in zip(steps, before, strict=True)]
        results = self._rows.split(self.pure(self._rows.merge(requests)), requests)
        outputs: list[Outputs | Exception] = []
        for step, state, found in zip(steps, before, results, strict=True):
            told = {n: found[n] for n in self.inputs.wanted}
            try:
                if step.confirm is not None:
                    step.confirm(told)
            except Exception as e:
                outputs.append(e)
                continue
            if step.ends:
                self._end(step.session)
            else:
                step.session.held = state | {n: found[PREFIX + n] for n in self._entry.writes}
                step.session.begun = True
            outputs.append(told)
        return outputs

    def _end(self, session: KeptSession) -> None:
        """Before the caller hears of it. A start that waits behind the last step begins anew; other steps fail."""
        with self._lock:
            session.held, session.begun = None, False
            if len(session.lane) <= 1:
                self._drop(session, "it has ended")

    def _before(self, step: SessionStep) -> dict[str, Array]:
        """The session's state, or what it starts as with the sizes of its first call."""
        if step.session.held is not None and not step.begins:
            return step.session.held
        shapes = tuple([a.shape for a in step.inputs.values])
        return self._start(self._entry.bound(shapes).env)

    def _whole(self, inputs: Prepared, state: Mapping[str, Array]) -> Prepared:
        """Inputs and state as one request; CallError where the sizes of the state are others than the call's."""
        values = [*inputs.values, *(state[n] for n in self._entry.reads)]
        self.pure.entry.bound(tuple([a.shape for a in values]))
        return Prepared(values, inputs.rows, inputs.steps, inputs.key)


def _named(name: object) -> None:
    text = isinstance(name, str) and 0 < len(name) <= _CHARACTERS and name.isprintable()
    number = isinstance(name, int) and not isinstance(name, bool) and 0 <= name < 2**64
    if not (text or number or isinstance(name, Unnamed)):
        what = f"{_CHARACTERS} characters at most, or a number from 0 to 2^64 - 1"
        raise CallError(f"a session's name is {str(name)[:_CHARACTERS]!r}; expected {what}")

"""Who is next: jobs of many threads wait in a bounded queue, one worker thread runs them in groups.

    submit (any thread) ─> lane (one after another) ─> group of its key ─> worker: `run(jobs)` ─> futures

A job has a key: those of equal keys may run together, up to `max_rows` rows. The worker takes the group whose first
job has waited longest, once it is full, or once that job has waited `max_delay` seconds; while it runs, others
gather. Jobs of one lane run one after another, in the order of their arrival. A job whose deadline has passed before
the worker takes it is not run; one whose future is cancelled leaves the queue at once. `close` takes no more jobs and
runs all that were taken. Where the worker itself fails, all that were taken get a DeviceError.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lstm_ir.backends import process
from lstm_ir.ir.errors import BusyError, DeadlineError, DeviceError
from lstm_ir.ir.foreign_errors import become

_TIDY_SECONDS = 1.0  # seconds between two looks of an idle worker at what `tidy` is for


@dataclass(eq=False)
class Job:
    """One request, on its way to the worker."""

    payload: Any
    key: Hashable
    rows: int  # that it takes of those that run together
    lane: deque[Job] | None = None
    deadline: float | None = None  # of time.monotonic()
    future: Future[Any] = field(default_factory=Future)
    accepted: float = 0.0
    counted: bool = True  # among the calls: what only reads or writes state is none
    owner: Any = None  # whose job it is, also once it is over
    waits: bool = False  # in the queue, where the worker has not taken it


@dataclass(eq=False)
class Counters:
    """What a scheduler has done since it was made; read without a lock."""

    accepted: int = 0
    refused: int = 0  # for lack of room
    expired: int = 0
    groups: int = 0  # shared calls
    jobs: int = 0  # calls in them
    rows: int = 0


class _Group:
    """Jobs of one key that wait."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.rows = 0

    @property
    def accepted(self) -> float:
        """When its first job came."""
        return self.jobs[0].accepted

    def add(self, job: Job) -> None:
        self.jobs.append(job)
        self.rows += job.rows

    def take(self) -> Job:
        job = self.jobs.popleft()
        self.rows -= job.rows
        return job

    def remove(self, job: Job) -> None:
        self.jobs.remove(job)
        self.rows -= job.rows


class Scheduler:
    """A bounded queue and its worker. `run` gets jobs whose futures run, and resolves each of them."""

    def __init__(
        self, run: Callable[[list[Job]], None], what: str, *, max_rows: int, max_delay: float, max_waiting: int,
        tidy: Callable[[], None] | None = None, settled: Callable[[list[Job]], None] | None = None,
    ) -> None:  # fmt: skip
        """`what` is the owner, for messages; `tidy` is called by the worker about once a second.

        settled: is called with jobs that have left the queue and their lanes, run or not: by the worker, or by the
        thread that has cancelled one.
        """
        self._run, self._what, self._tidy, self._settled = run, what, tidy, settled
        self.max_rows, self._max_delay, self._max_waiting = max_rows, max_delay, max_waiting
        self._changed = threading.Condition()
        self._groups: dict[Hashable, _Group] = {}
        self._taken: set[Job] = set()  # that wait or run
        self._waiting = 0
        self._fault: BaseException | None = None  # for which the worker has ended
        self._closing = self._abandoned = False
        self._pid = os.getpid()
        self.counters = Counters()
        self._thread = threading.Thread(target=self._work, name=f"lstm-ir {what}", daemon=True)
        with become(DeviceError, f"the {what} cannot start its thread"):
            self._thread.start()

    def need_open(self) -> None:
        """DeviceError once closed."""
        if self._fault is not None:
            raise self._failed(self._fault)
        if self._closing:
            raise DeviceError(f"the {self._what} {'are' if self._what.endswith('s') else 'is'} closed")

    @property
    def waiting(self) -> int:
        """Jobs that were taken and do not run yet."""
        return self._waiting

    def submit(self, job: Job) -> None:
        """Take the job; BusyError where as many wait as may, DeviceError once closed."""
        self._here()
        with self._changed:
            self.need_open()
            if self._waiting >= self._max_waiting:
                self.counters.refused += 1
                raise BusyError(f"{self._waiting} requests wait for the {self._what}; no more are taken now")
            self._waiting += 1
            self.counters.accepted += 1
            job.accepted = time.monotonic()
            job.waits = True
            self._taken.add(job)
            job.future.add_done_callback(partial(self._withdraw, job))
            if job.lane is not None:
                job.lane.append(job)
            if job.lane is None or len(job.lane) == 1:
                self._wake(self._ready(job))

    def _wake(self, group: _Group) -> None:
        """For a group that got a job."""
        if len(group.jobs) == 1 or group.rows >= self.max_rows:  # else nothing is due earlier than it was
            self._changed.notify_all()

    def _withdraw(self, job: Job, future: Future[Any]) -> None:
        """What was cancelled leaves the queue, where the worker has not taken it: its place is free at once."""
        if not future.cancelled():
            return
        with self._changed:
            job.payload = None
            if not job.waits:
                return
            self._leave(job)
            self._taken.discard(job)
            if job.deadline is not None and time.monotonic() > job.deadline:
                self.counters.expired += 1
            lane = job.lane
            ready = lane is None or lane[0] is job
            if ready:
                group = self._groups[job.key]
                group.remove(job)
                if not group.jobs:
                    del self._groups[job.key]
            if lane is not None:
                lane.remove(job)
                if ready and lane:
                    self._wake(self._ready(lane[0]))
        if self._settled is not None:
            self._settled([job])

    def _leave(self, job: Job) -> None:
        job.waits = False
        self._waiting -= 1

    def _here(self) -> None:
        process.enter()
        if os.getpid() != self._pid:
            raise DeviceError(f"the {self._what} belongs to another process, whose thread a forked child lacks")

    def stop(self) -> None:
        """Take no more jobs; those that were taken are run."""
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def close(self) -> None:
        """Take no more jobs, and come back when all that were taken have been run."""
        self.stop()
        if os.getpid() == self._pid and not self._abandoned and threading.current_thread() is not self._thread:
            self._thread.join()

    def abandon(self) -> None:
        """Run nothing more: what waits gets a DeviceError once the call that runs is over. Nobody waits for that."""
        self._abandoned = True
        self.stop()

    @property
    def done(self) -> bool:
        """Whether it was stopped and all that it had taken has been run."""
        return not self._thread.is_alive()

    def _ready(self, job: Job) -> _Group:
        group = self._groups.get(job.key)
        if group is None:
            group = self._groups[job.key] = _Group()
        group.add(job)
        return group

    def _work(self) -> None:
        try:
            self._rounds()
        except BaseException as e:
            self._break(e)

    def _break(self, fault: BaseException) -> None:
        """The worker ends: whoever waits, and whoever comes, is told why."""
        with self._changed:
            self._fault, self._closing = fault, True
            lost = list(self._taken)
            for job in lost:
                job.waits = False
                if job.lane is not None:
                    job.lane.clear()
            self._taken.clear()
            self._groups.clear()
            self._waiting = 0
        for job in lost:
            with suppress(InvalidStateError):  # it was cancelled, or has its result
                job.future.set_exception(self._failed(fault))

    def _failed(self, fault: BaseException) -> DeviceError:
        error = DeviceError(f"the thread of the {self._what} has failed: {type(fault).__name__}: {fault}")
        error.__cause__ = fault
        return error

    def _rounds(self) -> None:
        tidied = time.monotonic()
        while self._round(None if self._tidy is None else tidied + _TIDY_SECONDS):
            if self._tidy is not None and time.monotonic() >= tidied + _TIDY_SECONDS:
                self._tidy()
                tidied = time.monotonic()

    def _round(self, until: float | None) -> bool:
        """Run what is next, waiting for it until then; whether there may be more. Its frame, and jobs in it, end."""
        with self._changed:
            jobs, late = self._next(until)
        if self._abandoned:
            jobs, late = [], [*jobs, *late]
        for job in late:
            self._give_up(job)
        running = [j for j in jobs if j.future.set_running_or_notify_cancel()]
        if running:
            self._resolve(running)
        self._finish([*jobs, *late])
        if self._settled is not None:
            self._settled([*jobs, *late])
        return bool(jobs or late or not self._closing or self._groups)

    def _give_up(self, job: Job) -> None:
        """Its time is over, or that of all."""
        self.counters.expired += 1
        if job.future.set_running_or_notify_cancel():
            waited = time.monotonic() - job.accepted
            late = DeadlineError(f"the request waited {waited:.3g} s, and its call had not begun")
            ended = DeviceError(f"the {self._what} was ended before the request's call began")
            job.future.set_exception(ended if self._abandoned else late)

    def _next(self, until: float | None) -> tuple[list[Job], list[Job]]:
        """What runs now, and what is too late for it; neither, where it is `until` or the end. Locked."""
        while True:
            now = time.monotonic()
            begun = now - self._max_delay
            due = [
                item for item in self._groups.items()
                if self._closing or item[1].rows >= self.max_rows or item[1].accepted <= begun
            ]  # fmt: skip
            if due:
                return self._take(*min(due, key=lambda item: item[1].accepted), now)
            if self._closing or (until is not None and now >= until):
                return [], []
            soonest = min((g.accepted + self._max_delay for g in self._groups.values()), default=until)
            if until is not None and soonest is not None:
                soonest = min(soonest, until)
            self._changed.wait(None if soonest is None else soonest - now)

    def _take(self, key: Hashable, group: _Group, now: float) -> tuple[list[Job], list[Job]]:
        jobs: list[Job] = []
        late: list[Job] = []
        rows = 0
        while group.jobs and (not jobs or rows + group.jobs[0].rows <= self.max_rows):
            job = group.take()
            self._leave(job)
            if job.deadline is not None and now > job.deadline:
                late.append(job)
            else:
                jobs.append(job)
                rows += job.rows
        if not group.jobs:
            del self._groups[key]
        return jobs, late

    def _resolve(self, jobs: list[Job]) -> None:
        calls = [j for j in jobs if j.counted]
        self.counters.groups += bool(calls)
        self.counters.jobs += len(calls)
        self.counters.rows += sum(j.rows for j in calls)
        try:
            self._run(jobs)
        except BaseException as e:
            for job in jobs:
                if not job.future.done():
                    job.future.set_exception(e)

    def _finish(self, jobs: list[Job]) -> None:
        """The next jobs of their lanes may run."""
        lanes = [j.lane for j in jobs if j.lane is not None]
        with self._changed:
            self._taken.difference_update(jobs)
            for lane in lanes:
                lane.popleft()
                if lane:
                    self._ready(lane[0])


def stop_with(owner: object, scheduler: Scheduler) -> None:
    """The worker ends when its owner is collected, and what it was given is run before the process ends."""
    weakref.finalize(owner, scheduler.stop).atexit = False
    _open.add(scheduler)


_open: weakref.WeakSet[Scheduler] = weakref.WeakSet()


@atexit.register  # later than `process` was, so that it runs before native work is held back
def _close_all() -> None:
    for scheduler in list(_open):
        scheduler.close()

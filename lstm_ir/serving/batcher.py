"""`li.Batcher`: requests of several threads or tasks in one call.

    batcher(x=a) in many threads ─> Rows.prepare (in the caller's thread; raises there) ─> Scheduler
      ─> Rows.merge ─> one call ─> Rows.split ─> each caller's result

A call that fails is made again for each of its requests alone, so that only the one at fault gets the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from typing import Any, Protocol

import numpy as np

from lstm_ir.ir.called import told
from lstm_ir.ir.errors import CallError, DeadlineError, DeviceError
from lstm_ir.ir.flags import confirm_flags
from lstm_ir.ir.options import is_int
from lstm_ir.ir.signature import Entry, by_name
from lstm_ir.serving.durations import deadline, seconds
from lstm_ir.serving.owner import SchedulerOwner
from lstm_ir.serving.row_check import confirm_rows
from lstm_ir.serving.rows import Prepared, Rows
from lstm_ir.serving.scheduler import Job, Scheduler

Array = np.ndarray[Any, Any]
Outputs = dict[str, Array]


class BatchedModel(Protocol):
    """What can be batched: an entry of an executable, or a function of another engine with its `entry`."""

    @property
    def entry(self) -> Entry:
        """Names and types of what it takes and gives."""

    def __call__(self, arrays: Mapping[str, Any], /) -> Mapping[str, Array]:
        """Outputs by name."""


WORDS = {
    **dict.fromkeys(("batch_size", "max_batch_size", "max_size"), "max_batch, rows"),
    **dict.fromkeys(("timeout", "max_wait", "max_wait_ms", "delay"), "max_delay, seconds"),
    "queue_size": "max_waiting, requests", "program": "exe, what li.compile or li.load gives",
}  # fmt: skip
"""Words of other servers for arguments of ours."""


class Batcher(SchedulerOwner):
    """One entry of an executable, called by many threads at once; results are those of calls of their own."""

    @told(WORDS, "Batcher")
    def __init__(
        self,
        exe: Any,
        *,
        entry: str | None = None,
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
        """`exe`: an executable, a session, or a callable with an `entry`. `batch` and `time` are names of sizes.

        entry: its name; the default is `main`, or the only one. lengths: the input with the steps of each row;
        the default is the one that a recurrent layer reads. outputs: those that requests get; the default is all.
        max_batch: rows of one call. max_delay: seconds that a request waits for others to join it. max_waiting:
        requests that wait at most. pad: requests of unequal steps may go together, where the graph has lengths.
        check: try, before the first request, that rows of a call do not change each other.
        CallError for an entry whose requests cannot share a call.
        """
        model = model_of(exe, entry)
        max_delay = limits(max_batch, max_delay, max_waiting)
        confirm_flags(pad=pad, check=check)
        if getattr(model.entry, "writes", ()):
            raise CallError(f"{model.entry.name}: it keeps state between calls; li.Sessions serves it")
        rows = Rows(model.entry, batch, time, lengths, outputs)
        if not pad:
            rows.without_padding()
        if check:
            confirm_rows(rows, model)
        self._calls, self._chosen = _Calls(rows, model), entry
        super().__init__(
            rows, Scheduler(self._calls, "batcher", max_rows=max_batch, max_delay=max_delay, max_waiting=max_waiting)
        )

    def submit(self, arrays: Mapping[str, Any], timeout: float | None = None) -> Future[Outputs]:
        """A future of the outputs; in a task: `await asyncio.wrap_future(batcher.submit(...))`.

        The arrays are copied: the caller may write into them at once. timeout: seconds after which the request is not
        begun any more: its error is a DeadlineError. Raises CallError and ValueRangeError as a call does, BusyError
        where too many wait, DeviceError once closed.
        """
        until = deadline(timeout)
        return submit_prepared(self, self.rows.prepare(arrays, copied=True), until)

    def __call__(
        self, arrays: Mapping[str, Any] | None = None, /, *more: Any, timeout: float | None = None, **named: Any
    ) -> Outputs:
        """The outputs by name, once the call that the request shares is over."""
        given = named if arrays is None and not more else by_name(self.rows.entry, (arrays, *more), named)
        until = deadline(timeout)
        found: Outputs = outcome(submit_prepared(self, self.rows.prepare(given), until), timeout)
        return found


def submit_prepared(batcher: Batcher, prepared: Prepared, until: float | None) -> Future[Outputs]:
    """What `Batcher.submit` gives, for inputs that were checked; `until` is of time.monotonic()."""
    job = Job(prepared, prepared.key, prepared.rows, deadline=until)
    batcher.scheduler.submit(job)
    return job.future


def renew(batcher: Batcher, exe: Any) -> None:
    """Let the batcher call this executable from now on; DeviceError where its entry is another."""
    model = model_of(exe, batcher._chosen)
    need_same(batcher.entry, model.entry)
    batcher._calls.model = model


class _Calls:
    """What the worker does with the requests of one group."""

    def __init__(self, rows: Rows, model: BatchedModel) -> None:
        self._rows, self.model = rows, model

    def __call__(self, jobs: list[Job]) -> None:
        resolve_jobs(jobs, lambda some: together(self._rows, self.model, [j.payload for j in some]))


def together(rows: Rows, model: BatchedModel, requests: Sequence[Prepared]) -> list[Outputs]:
    """The outputs of each request, by one call."""
    return rows.split(model(rows.merge(requests)), requests)


def resolve_jobs(jobs: Sequence[Job], run: Callable[[Sequence[Job]], Sequence[Any]]) -> None:
    """Give each job its result of `run`, which gets all; where that fails, each alone gets its result or its error.

    A result that is an exception is the error of that job alone.
    """
    try:
        results = run(jobs)
    except Exception as e:
        if len(jobs) == 1:
            jobs[0].future.set_exception(e)
            return
        for job in jobs:
            resolve_jobs([job], run)
        return
    for job, result in zip(jobs, results, strict=True):
        if isinstance(result, Exception):
            job.future.set_exception(result)
        else:
            job.future.set_result(result)


def need_same(entry: Entry, other: Entry) -> None:
    """DeviceError for an entry that takes or gives something else."""
    if other != entry:
        raise DeviceError(f"{entry.name}: what was loaded again takes or gives something else")


def outcome(future: Future[Any], timeout: float | None) -> Any:
    """The future's result; DeadlineError where it does not run after so many seconds."""
    try:
        return future.result(None if timeout is None else seconds("timeout", timeout))
    except DeadlineError:
        raise
    except LateError:
        if future.cancel():
            raise DeadlineError(f"the request waited {timeout:.3g} s, and its call had not begun") from None
        return future.result()


def limits(max_batch: object, max_delay: object, max_waiting: object) -> float:
    """The seconds of `max_delay`; CallError for limits of calls that are none."""
    whole("max_batch", max_batch)
    whole("max_waiting", max_waiting)
    return seconds("max_delay", max_delay)


def whole(name: str, value: object) -> None:
    """CallError for what is no whole number of 1 or more."""
    if not is_int(value) or value < 1:
        raise CallError(f"{name} is {value!r}; expected a whole number of 1 or more")


def model_of(exe: Any, entry: str | None) -> BatchedModel:
    """The entry of an executable or session, or a callable with an entry of its own."""
    entries = getattr(exe, "entries", None)
    if entries is not None:
        if entry is not None:
            found = entries[entry]
        elif len(entries) == 1:
            found = next(iter(entries.values()))
        else:
            found = entries["main"]
        return found  # type: ignore[no-any-return]
    if entry is not None or not callable(exe) or not isinstance(getattr(exe, "entry", None), Entry):
        got = type(exe).__name__
        raise CallError(f"a batcher takes an executable, a session or a callable with an `entry`; got {got}")
    return exe  # type: ignore[no-any-return]

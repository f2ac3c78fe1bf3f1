"""Threads that help callers: they take part in what a caller's thread runs by itself.

A helper waits for a lock while nobody calls. A call that finds too few helpers at its queue wakes
more, and begins without them. A helper polls the queue for IDLE_SECONDS seconds after the last entry, so
the next call finds it awake; then it waits for the lock again. There are few in a process:
where several sessions call at once, the processors have work, and those that find no helper do theirs
alone. Where sessions take turns, a call has those leave that poll the queue of another where none runs.

A signal handler may raise between any two lines of a call. So nothing that a call leaves half done is
needed: only a helper's own thread says that it is free again, being sent twice is as good as once, and
a call that never says that it ended keeps helpers for IDLE times their patience.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from lstm_ir.backends import bindings, process, queue
from lstm_ir.backends.memory import LINE
from lstm_ir.backends.run import runtime, transfer
from lstm_ir.backends.run.threads import affinity, choice, stacks
from lstm_ir.backends.run.tuned import IDLE_SECONDS
from lstm_ir.ir.types import DType

_END = 1.0  # seconds that the end of the process waits for one
_PAUSE = 1.0  # seconds without a further try, where no thread could be had
_TRIAL = 10_000 * queue.IDLE_POLL  # polls that are timed
_CLOSED = queue.CLOSED * LINE // 4  # its place among the words

Array = np.ndarray[Any, Any]

_lock = threading.Lock()
_helpers: list[_Helper] = []
_queues: weakref.WeakSet[Queue] = weakref.WeakSet()


class _Pool:
    """What is known of this process."""

    closed = False  # the process ends: no further helper is started
    again = 0.0  # when one may be started once more, by time.monotonic()
    polls = 0  # of the queue that a helper has patience for; 0: not yet known


def wanted() -> int:
    """Helpers of one call."""
    return choice.helpers(runtime.threads())


class Queue:
    """What one session publishes, and how its calls name it. One call at a time uses it."""

    def __init__(
        self, context: Callable[[], Any], function: Any, move: transfer.HostMover, schedule_caller: bool
    ) -> None:
        self._context, self._function, self._move = context, function, move
        self._schedule_caller = schedule_caller  # onto a processor without a helper
        self._wanted = wanted()
        runtime.fix_threads()
        self._words, self._view = self._made()
        self._open, self._calls = True, 0
        runtime.outlive_fork(self)
        _queues.add(self)

    @property
    def helpers(self) -> int:
        """Helpers that are here, or on their way."""
        return sum(h.queue is self for h in _helpers)

    def _made(self) -> tuple[Array, Any]:
        memory = queue.memory()
        words = memory[: queue.ENTRY * LINE].view(np.int32)
        return words, self._move.lent(memory, transfer.BorderType(DType.i8))

    def append_to(self, arguments: Any, workers: int, helpers: int) -> Any:
        """An argument list, with what helpers need: the queue, how many share the work, whether they do."""
        arguments.push_ref(self._view)
        arguments.push_int(workers)
        arguments.push_int(int(helpers > 0))
        return arguments

    def begin_call(self) -> None:
        """A call begins: wake helpers, if none poll the queue."""
        self._calls = self._calls % 0x7FFFFFFF + 1
        self._words[queue.CALL] = self._calls
        if self._open:
            self._words[_CLOSED] = 0  # another queue's call may have set it
        here, missing = affinity.of_process.current(), self._wanted
        for h in _helpers:
            if h.queue is not self:
                continue
            missing -= 1
            if not h.awake:
                h.call()
            elif h.cpu is not None and h.cpu == here and self._schedule_caller:
                affinity.of_process.off([x.cpu for x in _helpers if x.queue is self])
        if missing > 0 and self._open:
            self._wake(missing, here)

    def _wake(self, missing: int, caller_cpu: int | None) -> None:
        """Helpers with nothing to do, and new ones, that are kept elsewhere than the caller runs.

        Linux may leave a thread that it wakes on its waker's processor, for a slice of 3 ms.
        """
        for h in _helpers:
            if missing > 0 and h.queue is None and (h.cpu is None or h.cpu != caller_cpu):
                h.queue = self
                h.call()
                missing -= 1
        while missing > 0 and (started := _start(caller_cpu)) is not None:
            started.queue = self
            started.call()
            missing -= 1
        for h in _helpers:
            other = h.queue
            if missing > 0 and other is not None and other is not self and other._send_off():
                h.following = self
                h.call()  # it may have left before it was told where to
                missing -= 1

    def _send_off(self) -> bool:
        """Have helpers leave, where no call runs; the next call takes them back."""
        if self._words[queue.CALL] != 0:
            return False
        self._words[_CLOSED] = 1
        return True

    def end_call(self) -> None:
        """The call ended, well or not."""
        self._words[queue.CALL] = 0

    def serve(self) -> None:
        """Take part in what is published, until nothing is for IDLE_SECONDS seconds. On the helper's thread."""
        if not _Pool.polls:
            _Pool.polls = self._polls()
        self._words[queue.POLLS] = _Pool.polls
        while self._open:
            call = self._words[queue.CALL]
            self._serve(self._view)
            if self._words[queue.CALL] in (0, call):
                return  # else one began while this thread left

    def _polls(self) -> int:
        """Polls of IDLE_SECONDS seconds, measured at a queue where nothing is published."""
        words, view = self._made()
        words[queue.POLLS] = _TRIAL
        least = float("inf")
        for _ in range(2):
            start = time.perf_counter()
            self._serve(view)
            least = min(least, time.perf_counter() - start)
        return int(min(max(_TRIAL * IDLE_SECONDS / least, _TRIAL / 10), 1 << 30))

    def _serve(self, view: Any) -> None:
        rt = bindings.native()
        arguments, results = rt.VmVariantList(1), rt.VmVariantList(1)
        arguments.push_ref(view)
        self._context().invoke(self._function, arguments, results)

    def close(self) -> None:
        """Have helpers leave; none comes again."""
        self._open = False
        self._words[_CLOSED] = 1


class _Helper:
    """One thread, kept on the processor `cpu` if that is given."""

    def __init__(self, cpu: int | None) -> None:
        self.cpu = cpu
        self.queue: Queue | None = None  # where it is wanted; only its thread says that it is not
        self.following: Queue | None = None  # where it goes from there
        self.awake = False
        self._called = threading.Lock()
        self._called.acquire()
        self._thread = threading.Thread(target=self._run, name="lstm-ir helper", daemon=True)
        with stacks.enough():
            self._thread.start()

    def call(self) -> None:
        """Wake it; twice is as good as once."""
        with suppress(RuntimeError):  # it was called, and has not looked yet
            self._called.release()

    def end(self) -> None:
        """Have its thread end."""
        self.call()
        self._thread.join(_END)

    def _run(self) -> None:
        try:
            self._serve_queues()
        finally:
            self.queue, self.awake = None, False
            with suppress(ValueError):  # never there: a call was ended while it started this thread
                _helpers.remove(self)

    def _serve_queues(self) -> None:
        if self.cpu is not None:
            with suppress(OSError):  # forbidden here
                os.sched_setaffinity(0, (self.cpu,))
        while True:
            self._called.acquire()
            if self.queue is None:
                self._go_on()
            while self.queue is not None:
                self.awake = True
                self._help(self.queue)
                self.awake = False
                self._go_on()
            if _Pool.closed:
                return

    def _go_on(self) -> None:
        self.queue, self.following = self.following, None

    def _help(self, queue: Queue) -> None:
        try:
            queue.serve()
        except Exception:  # whoever calls works alone from now on
            queue.close()


def _start(caller_cpu: int | None) -> _Helper | None:
    """A new helper that is kept elsewhere; None where there are enough, or no thread can be had."""
    with _lock:
        if _Pool.closed or time.monotonic() < _Pool.again:
            return None
        taken = [h.cpu for h in _helpers]
        free: list[int | None] = [None] * (wanted() - len(taken))
        found = affinity.processor_each(1 + wanted())
        if found is not None:
            free = [cpu for cpu in found if cpu != caller_cpu and cpu not in taken]
        if not free:
            return None
        try:
            made = _Helper(free[0])
        except RuntimeError:  # the process may have no more threads now, or it ends
            _Pool.again = time.monotonic() + _PAUSE
            return None
        _helpers.append(made)
        return made


def _close_all() -> None:
    """Before IREE's modules are unloaded nobody may run their code, or keep it."""
    _Pool.closed = True
    end = time.monotonic() + _END
    for b in list(_queues):
        b.close()
    while any(h.awake for h in _helpers) and time.monotonic() < end:
        time.sleep(1e-4)
    for h in list(_helpers):  # which they leave
        h.end()


process.at_end(farewell=_close_all)

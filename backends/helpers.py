"""Threads that help callers: they take part in what a caller's thread runs by itself.

A helper waits for a lock while nobody calls. A call that finds its board without helpers sends some,
and begins alone. A helper stays at the board for PATIENCE seconds after the last offer, awake, so the
next call finds it there; then it goes home. There are at most MOST of them in a process: where several
sessions call at once, the processors have work, and those that find no helper do theirs alone.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from contextlib import suppress
from typing import Any

import numpy as np

from lstm_ir.backends import board, home, runtime, transfer
from lstm_ir.errors import DeviceError
from lstm_ir.types import DType

PATIENCE = 400e-6  # seconds
MOST = 3  # helpers of a process
_END = 1.0  # seconds that the end of the process waits for one
_TRIAL = 10_000 * board.IDLE  # what timed looks amount to

Array = np.ndarray[Any, Any]

_lock = threading.Lock()
_idle: list[_Helper] = []
_boards: weakref.WeakSet[Board] = weakref.WeakSet()


class _Pool:
    """What is known of this process."""

    places: list[int | None] | None = None  # where helpers are still to be started
    closed = False  # the process ends
    looks = 0  # that a helper has patience for; 0: not yet known


def wanted() -> int:
    """Helpers of one call."""
    return max(0, min(runtime.threads() - 1, MOST))


class Board:
    """What one session offers, and how its calls name it. One call at a time uses it."""

    def __init__(self, context: Any, attend: Any, move: transfer.HostMover) -> None:
        self._context, self._attend, self._move = context, attend, move
        self.helpers: list[_Helper] = []  # that are here, or on their way
        self._wanted = wanted()
        runtime.fix_threads()
        self._words, self._view = self._made()
        self._open = True
        runtime.outlive_fork(self)
        _boards.add(self)

    def _made(self) -> tuple[Array, Any]:
        memory = board.board()
        words = memory[: board.RECORD * board.LINE].view(np.int32)
        return words, self._move.lent(memory, transfer.Kind(DType.i8))

    def complete(self, arguments: Any) -> Any:
        """An argument list, with what a function takes of helpers."""
        arguments.push_ref(self._view)
        arguments.push_int(1 + self._wanted)
        return arguments

    def begin(self) -> None:
        """A call begins: send for helpers, if they are not here."""
        self._words[board.BUSY] = 1
        here = home.processor()
        if here is not None and any(h.cpu == here for h in self.helpers):
            home.step_aside({h.cpu for h in self.helpers})
        while len(self.helpers) < self._wanted and self._open:
            helper = _free(here)
            if helper is None:
                return
            self.helpers.append(helper)
            helper.go(self)

    def end(self) -> None:
        """The call ended, well or not."""
        self._words[board.BUSY] = 0

    def attend(self) -> None:
        """Take part in what is offered, till none comes for a while. On the helper's thread."""
        if not _Pool.looks:
            _Pool.looks = self._looks()
        self._words[board.PATIENCE] = _Pool.looks
        self._stay(self._view)
        while self._words[board.BUSY] and self._open:  # one began while this thread left
            self._stay(self._view)

    def _looks(self) -> int:
        """What looks amount to in PATIENCE seconds, by looks at a board where nothing is offered."""
        words, view = self._made()
        words[board.PATIENCE] = _TRIAL
        least = float("inf")
        for _ in range(2):
            start = time.perf_counter()
            self._stay(view)
            least = min(least, time.perf_counter() - start)
        return int(min(max(_TRIAL * PATIENCE / least, _TRIAL / 10), 1 << 30))

    def _stay(self, view: Any) -> None:
        rt = runtime.native()
        arguments, results = rt.VmVariantList(1), rt.VmVariantList(1)
        arguments.push_ref(view)
        self._context.invoke(self._attend, arguments, results)

    def close(self) -> None:
        """Send helpers home; none comes again."""
        self._open = False
        self._words[board.LEAVE * board.LINE // 4] = 1


class _Helper:
    """One thread, kept on the processor `cpu` if that is given."""

    def __init__(self, cpu: int | None) -> None:
        self.cpu = cpu
        self._called = threading.Lock()
        self._called.acquire()
        self._board: Board | None = None
        self._thread = threading.Thread(target=self._run, name="lstm-ir helper", daemon=True)
        self._thread.start()

    def go(self, to: Board) -> None:
        """Have it attend to a board."""
        self._board = to
        self._called.release()

    def end(self) -> None:
        """Have its thread end; it has nothing to do."""
        self._called.release()
        self._thread.join(_END)

    def _run(self) -> None:
        if self.cpu is not None:
            with suppress(OSError):  # forbidden here
                os.sched_setaffinity(0, (self.cpu,))
        while True:
            self._called.acquire()
            there, self._board = self._board, None
            if there is None:
                return
            self._help(there)
            del there  # its module may be freed
            _idle.append(self)

    def _help(self, there: Board) -> None:
        try:
            there.attend()
        except Exception:  # whoever calls works alone from now on
            there.close()
        finally:
            there.helpers.remove(self)


def _free(here: int | None) -> _Helper | None:
    """A helper with nothing to do that is kept elsewhere than `here`, where the caller runs.

    Linux may leave a thread that it wakes on its waker's processor, for a slice of 3 ms.
    """
    for helper in list(_idle):
        if helper.cpu is None or helper.cpu != here:
            try:
                _idle.remove(helper)  # atomic
            except ValueError:
                continue  # another caller was first
            return helper
    with _lock:
        if _Pool.closed:
            return None
        if _Pool.places is None:
            found = home.places(1 + wanted())
            _Pool.places = [None] * wanted() if found is None else [*found]
        for cpu in _Pool.places:
            if cpu is None or cpu != here:
                _Pool.places.remove(cpu)
                return _Helper(cpu)
    return None


@atexit.register
def _close_all() -> None:
    """Before IREE's modules are unloaded nobody may run their code, or keep it."""
    try:
        runtime.check_process()
    except DeviceError:
        return  # a forked child has no helpers
    _Pool.closed = True
    end = time.monotonic() + _END
    for b in list(_boards):
        b.close()
    while any(b.helpers for b in list(_boards)) and time.monotonic() < end:
        time.sleep(1e-4)
    while _idle:
        _idle.pop().end()

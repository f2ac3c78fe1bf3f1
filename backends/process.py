"""Whether this process may run native code: not where it was forked from one that did, not while it ends.

A forked child has none of its parent's threads, so a lock that one of them held is never released in it. And a
thread that comes back from native code while Python ends is ended inside of it, which aborts the process (exit
code 134). So the end of the process waits for those inside, WAIT seconds at most, and lets no other begin.

Native work is done in turns: `enter`, then under a lock made here a `check`.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from lstm_ir.ir.errors import DeviceError

WAIT = 2.0  # seconds that the end of the process waits for native work, all together
_PAUSE = 0.05  # seconds between two interruptions of it

Lock = threading.Lock
Action = Callable[[], None]


class _ProcessState:
    """What became of this process."""

    def __init__(self, forked: bool = False) -> None:
        self.refuses = forked  # it is a forked child, or it ends
        self.started = forked  # IREE's runtime
        self.forked = forked  # since then
        self.last: int | None = None  # the thread that ends the process, and may still do everything
        self.locks: set[weakref.ref[Lock]] = set()
        self.never = Lock()  # released by nobody


_process = _ProcessState()
_interrupts: list[Action] = []
_end_actions: list[Action] = []


def new_lock() -> Lock:
    """A lock for turns of native work; the end of the process takes part in them."""
    made, locks = Lock(), _process.locks
    locks.add(weakref.ref(made, locks.discard))
    return made


def check() -> None:
    """DeviceError in a forked child, and, while the process ends, on all of its threads but the last.

    Under a lock: whoever catches this lets it go, then calls `hold_back`.
    """
    if not _process.refuses:
        return
    if _process.forked:
        raise DeviceError(
            "a forked child cannot use executables of its parent, or load others: it lacks its parent's worker "
            "threads; start it with multiprocessing's 'spawn', or fork before the first module is loaded"
        )
    if threading.get_ident() != _process.last:
        raise DeviceError("the process ends")


def hold_back() -> None:
    """While the process ends: keep the calling thread here, unless it is the last. It holds no lock."""
    if _process.last is not None and threading.get_ident() != _process.last:
        _process.never.acquire()


def enter() -> None:
    """`hold_back`, and DeviceError in a forked child: before a lock, which a thread that the child lacks may hold."""
    if _process.refuses:
        hold_back()
        check()


@contextmanager
def turn(lock: Lock) -> Iterator[None]:
    """`lock` is held inside; DeviceError in a forked child."""
    enter()
    try:
        with lock:
            check()
            yield
    finally:
        hold_back()


@contextmanager
def work() -> Iterator[None]:
    """Inside is work that a forked child may do too, such as a compilation; it takes no turns with other work."""
    with turn(new_lock()) if not _process.forked else nullcontext():
        yield


def runtime_started() -> None:
    """From now on a forked child may run nothing."""
    _process.started = True


def forked() -> bool:
    """Whether this is a forked child of a process whose runtime had started."""
    return _process.forked


def at_end(*, interrupt: Action | None = None, farewell: Action | None = None) -> None:
    """What the end of the process does: to native work that keeps it waiting, and when that has ended."""
    if interrupt is not None:
        _interrupts.append(interrupt)
    if farewell is not None:
        _end_actions.append(farewell)


@atexit.register
def _end() -> None:
    if _process.forked:
        return
    _process.never.acquire()
    _process.last, _process.refuses = threading.get_ident(), True
    end = time.monotonic() + WAIT
    held = [lock for ref in _process.locks.copy() if (lock := ref()) is not None]
    while held:
        held = [lock for lock in held if not _passed(lock, end)]
    for action in _end_actions:
        action()


def _passed(lock: Lock, end: float) -> bool:
    """Whether no work is done under `lock` any longer, or the time for it is over."""
    if lock.acquire(timeout=_PAUSE):
        lock.release()
        return True
    for action in _interrupts:
        action()
    return time.monotonic() >= end


def _in_child() -> None:
    """After a fork: nobody works here, whatever the parent's threads did."""
    global _process
    _process = _ProcessState(forked=_process.started)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

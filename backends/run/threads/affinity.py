"""On which processors threads run: callers of workers beside the first one, callers of helpers apart.

A call by IREE's workers wakes the first, which looks at what is to be done and wakes the others. Where the
caller runs on that worker's processor, the worker starts as the caller goes to sleep. Elsewhere its
processor has to be woken first, and then the caller's, which sleeps by then, for the second worker:
0.04 ms of a call on a virtual machine (docs/performance.md). Linux leaves callers where they are, so
they are moved, once in a while. Helpers that are kept on a processor take none that a caller works on.
"""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress


def _reader() -> Callable[[], int] | None:
    """The C library's sched_getcpu; it reads memory of the process, and asks no kernel.

    Called with Python's lock held: another thread that takes it would keep it for 5 ms.
    """
    try:
        found = ctypes.PyDLL(None).sched_getcpu
    except (AttributeError, OSError, TypeError):
        return None
    read: Callable[[], int] = found
    return read


def processor_each(threads: int) -> list[int] | None:
    """One processor for each of so many threads, where the process may use no others."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    mine = sorted(os.sched_getaffinity(0))
    return mine if len(mine) == threads > 1 else None


def _move(to: Collection[int]) -> None:
    """Run there now. The processors that the thread may use are the same before and after."""
    with suppress(OSError):  # forbidden here
        allowed = os.sched_getaffinity(0)
        there = allowed.intersection(to)
        if there:
            try:  # a signal handler may raise behind any call
                os.sched_setaffinity(0, there)
            finally:
                os.sched_setaffinity(0, allowed)


class Placement:
    """Where callers are, and on which processors they should be.

    cpu: the processor that the calling thread runs on, where the system says it. pause: seconds between two moves,
    where something else keeps moving the caller away. first_worker: the processor that it is kept on; None: on any.
    """

    def __init__(self, cpu: Callable[[], int] | None, pause: float = 0.05, first_worker: int | None = None) -> None:
        self.cpu, self.pause, self.first_worker = cpu, pause, first_worker
        self.moved = -math.inf  # when a caller was, by time.monotonic

    def current(self) -> int | None:
        """The processor that the calling thread runs on; None where the system does not say."""
        return None if self.cpu is None else self.cpu()

    def to_first_worker(self) -> None:
        """Move the calling thread to the first worker's processor, if it may run there."""
        if self.first_worker is None or self.cpu is None or self.cpu() == self.first_worker:
            return
        if self._again():
            _move((self.first_worker,))

    def off(self, taken: Collection[int | None]) -> None:
        """Move the calling thread off these processors, on which helpers wait awake for its work."""
        if self._again() and hasattr(os, "sched_getaffinity"):
            _move(os.sched_getaffinity(0).difference(taken))

    def _again(self) -> bool:
        """Whether the pause since the last move is over; the next one begins then."""
        now = time.monotonic()
        if now - self.moved < self.pause:
            return False
        self.moved = now
        return True


of_process = Placement(_reader() if hasattr(os, "sched_setaffinity") else None)

"""On which processors threads run: callers of workers beside the first one, callers of helpers apart.

A call by IREE's workers wakes the first, which looks at what is to be done and wakes the others. Where the
caller runs on that worker's processor, the worker starts as the caller goes to sleep. Elsewhere its
processor has to be woken first, and then the caller's, which sleeps by then, for the second worker:
0.04 ms of a call on a virtual machine (docs/performance.md). Linux leaves callers where they are, so
they are moved, once in a while. Helpers that are kept on a processor take none that a caller works on.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

PAUSE = 0.05  # seconds between two moves, where something else keeps moving the caller away


@dataclass(slots=True)
class _State:
    first_worker: int | None = None  # the processor that it is kept on
    moved: float = 0.0  # when a caller was, by time.monotonic


_state = _State()


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


_cpu = _reader() if hasattr(os, "sched_setaffinity") else None


def processor_each(threads: int) -> list[int] | None:
    """One processor for each of so many threads, where the process may use no others."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    mine = sorted(os.sched_getaffinity(0))
    return mine if len(mine) == threads > 1 else None


def current_processor() -> int | None:
    """The processor that the calling thread runs on; None where the system does not say."""
    return None if _cpu is None else _cpu()


def set_first_worker(cpu: int | None) -> None:
    """Say on which processor the first worker is kept; None: on any."""
    _state.first_worker = cpu


def move_to_first_worker() -> None:
    """Move the calling thread to the first worker's processor, if it may run there."""
    if _state.first_worker is None or _cpu is None or _cpu() == _state.first_worker:
        return
    now = time.monotonic()
    if now - _state.moved < PAUSE:
        return
    _state.moved = now
    _move((_state.first_worker,))


def move_off(taken: Collection[int | None]) -> None:
    """Move the calling thread off these processors, on which helpers wait awake for its work."""
    now = time.monotonic()
    if now - _state.moved < PAUSE:
        return
    _state.moved = now
    if hasattr(os, "sched_getaffinity"):
        _move(os.sched_getaffinity(0).difference(taken))


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

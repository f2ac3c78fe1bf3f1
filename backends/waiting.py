"""How a thread waits for IREE's workers.

The worker that ends a call wakes the caller, and only then marks the call as left; the caller spins
until it sees the mark (`iree_async_semaphore_multi_wait` in IREE 3.13). Where Linux lets the woken
caller push the worker off its processor, it spins away its own slice, 3 ms. A thread with the policy
SCHED_BATCH pushes nobody aside when it wakes; the policy is the caller's for as long as it waits.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

Invoke = Callable[..., Any]


def patiently(invoke: Invoke, /, *arguments: Any) -> None:
    """`invoke(*arguments)` by a caller that lets workers finish."""
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        invoke(*arguments)  # chosen by whoever runs this thread
        return
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, _NORMAL)
    except OSError:  # forbidden here
        invoke(*arguments)
        return
    try:
        invoke(*arguments)
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, _NORMAL)


def plainly(invoke: Invoke, /, *arguments: Any) -> None:
    """`invoke(*arguments)`."""
    invoke(*arguments)


if hasattr(os, "sched_setscheduler") and hasattr(os, "SCHED_BATCH"):
    _NORMAL = os.sched_param(0)
else:
    patiently = plainly

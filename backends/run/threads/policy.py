"""The scheduling policy of a thread that waits for IREE's workers.

The worker that ends a call wakes the caller, and only then marks the call as left; the caller spins
until it sees the mark (`iree_async_semaphore_multi_wait` in IREE 3.13). Where Linux lets the woken
caller push the worker off its processor, it spins away its own slice, 3 ms. A thread with the policy
SCHED_BATCH pushes nobody aside when it wakes; the policy is the caller's for as long as it waits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

Invoke = Callable[..., Any]


class _Thread(threading.local):
    """What this module knows of a thread."""

    ours = False  # SCHED_BATCH is this module's, or about to be


_thread = _Thread()


def batch(invoke: Invoke, /, *arguments: Any) -> None:
    """`invoke(*arguments)` by a caller that has SCHED_BATCH meanwhile."""
    policy = os.sched_getscheduler(0)
    # A signal handler may raise between any two lines here: then a call before this left its policy.
    if policy != os.SCHED_OTHER and not (_thread.ours and policy == os.SCHED_BATCH):
        _thread.ours = False
        invoke(*arguments)  # chosen by whoever runs this thread
        return
    try:
        _thread.ours = True
        try:  # not `suppress`: this runs with cold caches, where every further line costs
            os.sched_setscheduler(0, os.SCHED_BATCH, _NORMAL)
        except OSError:
            pass  # forbidden here
        invoke(*arguments)
    finally:
        try:
            _restore()
        finally:
            if _thread.ours:
                _restore()


def _restore() -> None:
    """The policy as it was; one that somebody chose meanwhile stays."""
    if os.sched_getscheduler(0) == os.SCHED_BATCH:
        os.sched_setscheduler(0, os.SCHED_OTHER, _NORMAL)
    _thread.ours = False


def unchanged(invoke: Invoke, /, *arguments: Any) -> None:
    """`invoke(*arguments)`."""
    invoke(*arguments)


if hasattr(os, "sched_setscheduler") and hasattr(os, "SCHED_BATCH"):
    _NORMAL = os.sched_param(0)
else:
    batch = unchanged

"""Seconds that callers give: checked by name, and never more than the system can wait."""

from __future__ import annotations

import threading
import time

from lstm_ir.ir.errors import CallError

# The half, since a sum with the clock's time is rounded, and what is waited is the difference again.
LONGEST = threading.TIMEOUT_MAX / 2


def seconds(name: str, value: object) -> float:
    """The value, at most LONGEST (146 years on Linux); CallError for what is no number of seconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise CallError(f"{name} is {value!r:.80}; expected seconds, a finite number of 0 or more")
    return min(value, LONGEST)


def deadline(timeout: float | None, begun: float | None = None) -> float | None:
    """When a request is too late, by time.monotonic(); CallError for what is no number of seconds.

    begun: when its time began; None: now.
    """
    if timeout is None:
        return None
    return (time.monotonic() if begun is None else begun) + seconds("timeout", timeout)

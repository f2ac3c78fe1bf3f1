"""Signals that ask the server to stop, as calls in its event loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_NAMES = ("SIGTERM", "SIGINT", "SIGBREAK")  # the last one is Windows' alone


@contextmanager
def calling(stop: Callable[[], None], loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Within it each of the signals calls `stop` in the loop; none does in a thread that is not the first."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for name in _NAMES:
            number = getattr(signal, name, None)
            if number is not None:
                before[number] = signal.getsignal(number)
                _take(number, stop, loop)
    try:
        yield
    finally:
        for number, handler in before.items():
            _give_back(number, handler, loop)


def _take(number: int, stop: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.add_signal_handler(number, stop)
    except NotImplementedError:  # Windows: Python's own handler, which the loop is woken by
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))


def _give_back(number: int, handler: Any, loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.remove_signal_handler(number)
    except NotImplementedError:
        pass
    if handler is not None:  # None: it was none of Python's
        signal.signal(number, handler)

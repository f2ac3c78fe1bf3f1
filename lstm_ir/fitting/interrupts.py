"""Ctrl-C between two batches, never within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """While it is open, an interrupt that comes inside of `held` is raised at its end.

    Elsewhere it is raised at once, as KeyboardInterrupt. Only the main thread gets interrupts, and a handler that
    somebody else has set is left alone: what that one raises ends `held` in its midst.
    """

    def __init__(self) -> None:
        self._held = self._came = self._ours = False
        self.cut = False  # whether an exception has ended the last `held` in its midst

    def __enter__(self) -> Interrupts:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._hear)
            self._ours = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._ours and signal.getsignal(signal.SIGINT) == self._hear:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if not self._held:
            raise KeyboardInterrupt
        self._came = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """What is done here is done whole."""
        self._held = self.cut = True
        try:
            yield
            self.cut = False
        finally:
            self._held = False
            if self._came:  # also where an error ended it: who asked for an end gets it
                self._came = False
                raise KeyboardInterrupt

"""Properties that are computed once."""

from __future__ import annotations

import threading

from lstm_ir.ir.cached import cached_property


class Slow:
    """A value that takes as long as a lock is held."""

    def __init__(self) -> None:
        self.lock, self.begun, self.times = threading.Lock(), threading.Event(), 0

    @cached_property
    def value(self) -> int:
        self.times += 1
        self.begun.set()
        with self.lock:
            return self.times


def test_a_thread_inside_keeps_nobody_out() -> None:
    """As in a forked child, where that thread is missing and its locks are never released."""
    first, second = Slow(), Slow()
    with first.lock:
        inside = threading.Thread(target=lambda: first.value)
        inside.start()
        assert first.begun.wait(10)
        got: list[int] = []
        other = threading.Thread(target=lambda: got.append(second.value), daemon=True)
        other.start()
        other.join(10)
        assert got == [1]
    inside.join()
    assert (first.value, first.value, first.times) == (1, 1, 1)

"""A fault of the worker's thread itself: no future is left without an answer, and nothing waits for it."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import pytest

from lstm_ir.ir.errors import DeviceError
from lstm_ir.serving.scheduler import Job, Scheduler

SAID = "the thread of the worker has failed: ZeroDivisionError: in the middle"


class Halted:
    """A scheduler that stops within its first call."""

    def __init__(self, **more: Any) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        self.scheduler = Scheduler(self.run, "worker", max_rows=1, max_delay=0.0, max_waiting=9, **more)

    def run(self, jobs: list[Job]) -> None:
        self.begun.set()
        assert self.go.wait(60)
        for job in jobs:
            job.future.set_result(job.key)


def fault(*_: Any) -> Any:
    raise ZeroDivisionError("in the middle")


@pytest.mark.parametrize("at", ["_next", "_finish", "_resolve"])
def test_a_worker_that_fails_answers_all(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that wait, in lanes too, and those that it had taken; later ones are refused, and `close` comes back."""
    halted, lane = Halted(), deque[Job]()
    jobs = [Job(None, "first", 1), Job(None, "second", 1, lane), Job(None, "third", 1, lane), Job(None, "last", 1)]
    halted.scheduler.submit(jobs[0])
    assert halted.begun.wait(60)
    for job in jobs[1:]:
        halted.scheduler.submit(job)
    jobs[-1].future.cancel()
    monkeypatch.setattr(halted.scheduler, at, fault)
    halted.go.set()
    assert jobs[0].future.result(60) == "first"
    for job in jobs[1:-1]:
        assert str(job.future.exception(60)) == SAID
    halted.scheduler.close()
    assert (halted.scheduler.waiting, halted.scheduler.done) == (0, True)
    with pytest.raises(DeviceError, match=SAID):
        halted.scheduler.submit(Job(None, "late", 1))


def test_a_cancelled_job_leaves_its_lane() -> None:
    """The next of the lane is then the first, and whoever is told of jobs that are over is told of it."""
    settled: list[Any] = []
    halted, lane = Halted(settled=lambda jobs: settled.extend(j.key for j in jobs)), deque[Job]()
    first, *behind = [Job(None, key, 1, lane if key else None) for key in range(5)]
    halted.scheduler.submit(first)
    assert halted.begun.wait(60)
    for job in behind:
        halted.scheduler.submit(job)
    for job in (behind[0], behind[2]):  # the first, and one in the middle
        assert job.future.cancel()
    assert ([j.key for j in lane], settled, halted.scheduler.waiting) == ([2, 4], [1, 3], 2)
    halted.go.set()
    assert [job.future.result(60) for job in (behind[1], behind[3])] == [2, 4]
    halted.scheduler.close()
    assert (list(lane), settled) == ([], [1, 3, 0, 2, 4])

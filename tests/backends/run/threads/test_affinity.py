"""Callers wait on the first worker's processor, and keep the processors that they may use."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from lstm_ir.backends.run.contexts import Contexts
from lstm_ir.backends.run.threads import affinity

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2 or affinity.of_process.cpu is None,
    reason="needs Linux, two processors and sched_getcpu",
)


def placement(first_worker: int | None) -> affinity.Placement:
    """Nobody was moved yet."""
    return affinity.Placement(affinity.of_process.cpu, first_worker=first_worker)


def _in_thread(run: Callable[[], None]) -> None:
    """Runs it in a thread of its own, whose processors end with it."""
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            run()
        except BaseException as e:
            failed.append(e)

    t = threading.Thread(target=guarded)
    t.start()
    t.join()
    if failed:
        raise failed[0]


def _cpu() -> int:
    cpu = affinity.of_process.current()
    assert cpu is not None
    return cpu


def test_an_interrupted_move_leaves_all_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of a signal handler arrives behind either call."""
    original = os.sched_setaffinity

    def run() -> None:
        mine = os.sched_getaffinity(0)
        for interrupted in (1, 2):
            calls = []

            def raising(who: int, cpus: set[int], at: int = interrupted) -> None:
                original(who, cpus)
                calls.append(cpus)  # noqa: B023
                if len(calls) == at:  # noqa: B023
                    raise KeyboardInterrupt

            monkeypatch.setattr(os, "sched_setaffinity", raising)
            place = placement(next(iter(mine - {_cpu()})))
            with pytest.raises(KeyboardInterrupt):
                place.to_first_worker()
            assert os.sched_getaffinity(0) == mine
            assert len(calls) == 2

    _in_thread(run)


def test_a_caller_moves_and_keeps_its_processors() -> None:
    def run() -> None:
        mine = os.sched_getaffinity(0)
        for cpu in sorted(mine) * 3:
            placement(cpu).to_first_worker()
            assert os.sched_getaffinity(0) == mine
            seen.append(_cpu() == cpu)

    seen: list[bool] = []
    _in_thread(run)
    assert sum(seen) > len(seen) // 2, seen  # the scheduler may move it on


def test_a_processor_that_a_caller_may_not_use_is_left_alone() -> None:
    def run() -> None:
        first, second, *_ = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {second})
        placement(first).to_first_worker()
        assert os.sched_getaffinity(0) == {second}
        assert _cpu() == second

    _in_thread(run)


def test_a_caller_is_moved_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps a caller away would otherwise cost every call a move."""
    moves: list[object] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: moves.append(cpus))
    place = affinity.Placement(lambda: -1)
    place.to_first_worker()
    assert moves == []  # nobody lives anywhere
    place.first_worker = min(os.sched_getaffinity(0))
    place.to_first_worker()
    assert len(moves) == 2  # there, and all processors again
    place.to_first_worker()
    assert len(moves) == 2
    place.moved -= 2 * place.pause
    place.to_first_worker()
    assert len(moves) == 4


@dataclass
class _Context:
    during: Callable[[], None]

    def invoke(self, *_: object) -> None:
        self.during()


def test_callers_that_overlap_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[int] = []

    class Recording(affinity.Placement):
        def to_first_worker(self) -> None:
            came.append(1)

    place = Recording(None)
    monkeypatch.setattr(Contexts, "_make", lambda _: _Context(lambda: None))
    contexts = Contexts([], "c", schedule=True, placement=place)
    contexts.invoke(None, None, None)
    assert len(came) == 1
    inner = _Context(lambda: contexts.invoke(None, None, None))
    contexts._free[:] = [inner]
    contexts.invoke(None, None, None)  # a call within a call
    assert contexts.made == 2
    assert len(came) == 2
    contexts.invoke(None, None, None)  # alone again
    assert len(came) == 3
    alone = Contexts([], "c", schedule=False, placement=place)
    alone.invoke(None, None, None)
    assert len(came) == 3

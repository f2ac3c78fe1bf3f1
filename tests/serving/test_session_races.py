"""Sessions that are dropped, ended, begun anew or idle while their state is asked for or set."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ir.errors import DeviceError, UnknownSessionError
from lstm_ir.serving.session_keeper import SessionKeeper
from lstm_ir.serving.sessions import put_state
from lstm_ir.serving.sessions import step as queue_step

pytestmark = pytest.mark.together
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def exe() -> Iterator[Any]:
    """Running sums of rows."""
    x, s = li.input("x", ("B", 2)), li.input("s", ("B", 2))
    with li.compile(li.stateful(li.Graph("sums", [x, s], {"y": s + x, "s_n": s + x}), {"s": "s_n"})) as made:
        yield made


@pytest.fixture
def sessions(exe: Any) -> Iterator[li.Sessions]:
    with li.Sessions(exe, max_sessions=8, max_delay=0.0, check=False) as made:
        yield made


def row(value: float) -> Array:
    return np.full((1, 2), value, np.float32)


class Gate:
    """The worker stops before it does what it has taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken, self.go = threading.Event(), threading.Event()
        run = SessionKeeper.run
        taken, go = self.taken, self.go

        def waits(keeper: SessionKeeper, jobs: list[Any]) -> None:
            taken.set()
            assert go.wait(60)
            run(keeper, jobs)

        monkeypatch.setattr(SessionKeeper, "run", waits)


def test_a_state_that_was_asked_for_outlives_its_session(exe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was accepted is done; then the session holds nothing more, and what comes is told why."""
    gate = Gate(monkeypatch)
    gate.go.set()
    with li.Sessions(exe, max_delay=0.0, check=False) as sessions:
        one = sessions.open("one")
        one(x=row(3))
        gate.go.clear()
        gate.taken.clear()
        asked = one.ask_state()
        assert gate.taken.wait(60)
        one.close()
        assert not sessions.has("one")
        gate.go.set()
        np.testing.assert_array_equal(asked.result(60)["s"], row(3))
        with pytest.raises(UnknownSessionError, match="session 'one' is not open: it was closed"):
            one.state()
        end = time.monotonic() + 60
        while one._kept.held is not None:
            assert time.monotonic() < end, "a closed session holds its state"
            time.sleep(0.01)


def test_states_of_an_idle_session(exe: Any) -> None:
    """It is closed: neither reading nor setting its state opens it again, and both say why."""
    with li.Sessions(exe, idle_timeout=0.05, max_delay=0.0, check=False) as sessions:
        one = sessions.open("one")
        one(x=row(3))
        end = time.monotonic() + 60
        while sessions.has("one"):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert sessions.evicted == 1
        for ask in (one.state, lambda: one.set_state({"s": row(1)}), lambda: one(x=row(1))):
            with pytest.raises(UnknownSessionError, match=r"session 'one' is not open: it was idle for 0\.05 s"):
                ask()
        put_state(sessions, "one", {"s": row(7)}).result(60)
        np.testing.assert_array_equal(sessions.get("one")(x=row(1))["y"], row(8))


def test_a_state_that_is_put_behind_the_end_begins_anew(exe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    with li.Sessions(exe, max_delay=0.0, check=False) as sessions:
        prepared = [sessions.rows.prepare({"x": row(v)}) for v in (1.0, 2.0, 10.0)]
        first = queue_step(sessions, "one", prepared[0], None, begins=True)
        last = queue_step(sessions, "one", prepared[1], None, ends=True)
        late = sessions.get("one").ask_state()
        put = put_state(sessions, "one", {"s": row(7)})
        after = queue_step(sessions, "one", prepared[2], None)
        gate.go.set()
        assert [f.result(60)["y"][0, 0] for f in (first, last)] == [1, 3]
        with pytest.raises(UnknownSessionError, match="its start failed, or it has ended"):
            late.result(60)
        put.result(60)
        assert after.result(60)["y"][0, 0] == 17
        assert sessions.has("one")


def test_a_state_that_cannot_be_put_opens_nothing(exe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with li.Sessions(exe, max_sessions=1, max_delay=0.0, check=False) as sessions:
        sessions.open("one")
        with pytest.raises(li.BusyError, match="max_sessions"):
            put_state(sessions, "two", {"s": row(1)})
        assert not sessions.has("two")
    gate = Gate(monkeypatch)
    with li.Sessions(exe, max_delay=0.0, check=False) as sessions:
        first = put_state(sessions, "one", {"s": row(1)})
        assert gate.taken.wait(60)
        second = put_state(sessions, "two", {"s": row(2)})
        sessions.scheduler.abandon()
        gate.go.set()
        first.result(60)
        with pytest.raises(DeviceError, match="ended before the request's call began"):
            second.result(60)
        end = time.monotonic() + 60
        while sessions.has("two"):
            assert time.monotonic() < end, "a session without a state is open"
            time.sleep(0.01)


def test_names_that_many_threads_open_step_read_and_drop(sessions: li.Sessions) -> None:
    """A session's state is that of its own steps, or it is not open: never another's, and never half of it."""
    end = time.monotonic() + 3
    done, told = [0] * 4, set()

    def client(which: int) -> None:
        rng = np.random.default_rng(which)
        while time.monotonic() < end:
            value = float(rng.integers(1, 1000))
            try:
                mine = sessions.open(f"n{rng.integers(3)}", restart=True)
                assert mine(x=row(value))["y"][0, 0] == value
                asked = mine.ask_state()
                if rng.integers(2):
                    mine.close()
                np.testing.assert_array_equal(asked.result(60)["s"], row(value))
                mine.set_state({"s": row(value + 1)})
                assert mine(x=row(1))["y"][0, 0] == value + 2
                done[which] += 1
            except UnknownSessionError as e:
                told.add(str(e).partition(" is not open: ")[2])

    with ThreadPoolExecutor(4) as threads:
        for future in [threads.submit(client, i) for i in range(4)]:
            future.result(120)
    assert min(done) > 3
    assert told <= {"another was begun under its name", "it was closed"}

"""Many threads on few executables: calls, sessions, state, files of state, loads and closes, in any order.

Every result is right, or the call was refused because what it called was closed. Executables are small ones made by
hand, one that counts, and an LSTM, whose calls run on the caller's thread, with helpers, or on teams of IREE's workers.
`python tests/campaigns/threads.py --seconds 60 [--seed S] [--trial K]`
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import campaign
import handmade
import numpy as np
from lstm_graph import lstm

import lstm_ir as li
from lstm_ir.backends.run.executable import Executable, Session

W = handmade.WEIGHTS["enc/w"]
SIZE = 64
INPUTS, UNITS = 40, 48
OPEN: Any = ("T", "B", INPUTS, UNITS)
# (T, B) of the LSTM: alone on the caller's thread, with helpers, on teams of workers.
SIZES = ((1, 1), (5, 2), (40, 3), (40, 16), (120, 8), (300, 30))


@cache
def package() -> Path:
    """A program that counts: y = s + x is its next s."""
    x, s = li.input("x", (SIZE,)), li.input("s", (SIZE,))
    graph = li.Graph("count", [x, s], {"y": x + s, "z": x + 1.0})
    return li.export(li.stateful(graph, {"s": "y"}), "count.lirpkg", ["cpu:host"]).absolute()


@cache
def layer() -> Path:
    """An LSTM over named steps and rows."""
    return li.export(lstm(OPEN), "layer.lirpkg", ["cpu:host"]).absolute()


@cache
def expected(T: int, B: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """x, and the LSTM's y by its NumPy meaning."""
    x = np.random.default_rng([T, B]).standard_normal((T, B, INPUTS)).astype(np.float32)
    return x, li.interpret(lstm(OPEN), {"x": x})["y"]


class Calls:
    """How many calls the threads of a trial made that gave a result."""

    def __init__(self) -> None:
        self.by_thread: dict[int, int] = {}

    def one(self) -> None:
        me = threading.get_ident()
        self.by_thread[me] = self.by_thread.get(me, 0) + 1

    @property
    def total(self) -> int:
        return sum(self.by_thread.values())


class Shared:
    """What the threads of a trial work on. device: of the LSTM; None leaves it to each call."""

    def __init__(self, driver: str, device: str | None) -> None:
        self.calls = Calls()
        self.layer = li.load(layer(), device)
        self.plain = handmade.load("cpu", driver=driver)
        self.counter = li.load(package())
        self.sessions: list[Session] = [self.counter.session() for _ in range(2)]


def call(shared: Shared, rng: np.random.Generator) -> None:
    """Once of many rows, or many times of few."""
    rows, times = [(3000, 1), (300, 20), (20, 200)][int(rng.integers(3))]
    a = rng.standard_normal((int(rng.integers(1, rows)), 5), np.float32)
    want = a + W
    for _ in range(times):
        assert np.allclose(shared.plain({"input.1": a})["y"], want, rtol=1e-6, atol=0)
        shared.calls.one()


def call_layer(shared: Shared, rng: np.random.Generator) -> None:
    """Alone, with helpers and on workers, mixed; more than one call, so that helpers of several calls meet."""
    for _ in range(int(rng.integers(1, 6))):
        x, y = expected(*SIZES[int(rng.integers(len(SIZES)))])
        np.testing.assert_allclose(shared.layer(x=x)["y"], y, rtol=2e-5, atol=2e-5)
        shared.calls.one()


def session_of_layer(shared: Shared, rng: np.random.Generator) -> None:
    with shared.layer.session() as s:
        x, y = expected(*SIZES[int(rng.integers(len(SIZES)))])
        np.testing.assert_allclose(s(x=x)["y"], y, rtol=2e-5, atol=2e-5)
        shared.calls.one()


def call_session(shared: Shared, rng: np.random.Generator) -> None:
    with shared.plain.session() as s:
        a = rng.standard_normal((7, 5), np.float32)
        np.testing.assert_allclose(s({"input.1": a})["y"], a + W, rtol=1e-6)
        shared.calls.one()


def count(shared: Shared, rng: np.random.Generator) -> None:
    """A session of its own counts alone."""
    with shared.counter.session() as s:
        times = int(rng.choice([5, 5, 200]))
        for _ in range(times):
            s.entries["step"](x=np.ones(SIZE, np.float32))
            shared.calls.one()
        np.testing.assert_array_equal(s.state["s"], np.full(SIZE, times))


def count_together(shared: Shared, rng: np.random.Generator) -> None:
    """A shared one counts in whole steps."""
    s = shared.sessions[int(rng.integers(len(shared.sessions)))]
    s.entries["step"](x=np.ones(SIZE, np.float32))
    shared.calls.one()
    values = s.state["s"]
    assert (values == values[0]).all()


def save_and_load(shared: Shared, rng: np.random.Generator) -> None:
    s = shared.sessions[int(rng.integers(len(shared.sessions)))]
    path = Path(f"{int(rng.integers(2))}.safetensors").absolute()
    s.save_state(path)
    s.load_state(path)


def reset(shared: Shared, rng: np.random.Generator) -> None:
    shared.sessions[0].reset()


def open_and_close(shared: Shared, rng: np.random.Generator) -> None:
    with li.load(package()) as exe, exe.session() as s:
        s.entries["step"](x=np.ones(SIZE, np.float32))
        shared.calls.one()
        exe.close()
        try:
            s.entries["step"](x=np.ones(SIZE, np.float32))
        except li.DeviceError as e:
            assert str(e) == "the session is closed"
        else:
            raise AssertionError("a session outlived its executable")


def close_one(shared: Shared, rng: np.random.Generator) -> None:
    owners: list[Executable | Session] = [shared.plain, shared.counter, shared.layer, *shared.sessions]
    owner = owners[int(rng.integers(len(owners)))]
    if rng.random() < 0.2:
        owner.close()


ACTS: list[Callable[[Shared, np.random.Generator], None]] = [
    call, call_layer, call_layer, session_of_layer, call_session, count,
    count_together, save_and_load, reset, open_and_close, close_one,
]  # fmt: skip


def prepare() -> None:
    """Compile what the trials load, before the first one's time begins."""
    handmade.load("cpu").close()
    for path in (package(), layer()):
        li.load(path).close()
    for sizes in SIZES:
        expected(*sizes)


def trial(rng: np.random.Generator, number: int) -> tuple[str, int]:
    """Two to six threads do a dozen acts each."""
    device = [None, None, "local-task"][int(rng.integers(3))]
    shared = Shared(str(rng.choice(["local-sync", "local-task"])), device)
    faults: list[str] = []
    closed: list[str] = []

    def work(own: np.random.Generator) -> None:
        for _ in range(12):
            act = ACTS[int(own.integers(len(ACTS)))]
            try:
                act(shared, own)
            except li.DeviceError as e:
                if not str(e).endswith(" is closed"):
                    faults.append(f"{act.__name__}: {e}")
                closed.append(act.__name__)
            except BaseException:
                faults.append(f"{act.__name__}: {traceback.format_exc(limit=-5)}")

    threads = [threading.Thread(target=work, args=(r,)) for r in rng.spawn(int(rng.integers(2, 7)))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults, faults[0]
    left = [p.name for p in Path.cwd().iterdir() if p.name.startswith(".")]
    assert not left, left
    return "some closed" if closed else "none closed", shared.calls.total


if __name__ == "__main__":
    campaign.main(trial, seconds=60, prepare=prepare)

"""Many threads on few executables: calls, sessions, state, files of state, loads and closes, in any order.

Every result is right, or the call was refused because what it called was closed.
`python tests/campaigns/threads.py --seconds 60 [--seed S] [--trial K]`
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path

import campaign
import handmade
import numpy as np

import lstm_ir as li
from lstm_ir.backends.run.executable import Executable, Session

W = handmade.WEIGHTS["enc/w"]
SIZE = 64


@cache
def package() -> Path:
    """A program that counts: y = s + x is its next s."""
    x, s = li.input("x", (SIZE,)), li.input("s", (SIZE,))
    graph = li.Graph("count", [x, s], {"y": x + s, "z": x + 1.0})
    return li.export(li.stateful(graph, {"s": "y"}), "count.lirpkg", ["cpu:host"]).absolute()


class Shared:
    """What the threads of a trial work on."""

    def __init__(self, driver: str) -> None:
        self.plain = handmade.load("cpu", driver=driver)
        self.counter = li.load(package())
        self.sessions: list[Session] = [self.counter.session() for _ in range(2)]


def call(shared: Shared, rng: np.random.Generator) -> None:
    a = rng.standard_normal((int(rng.integers(1, 3000)), 5), np.float32)
    np.testing.assert_allclose(shared.plain({"input.1": a})["y"], a + W, rtol=1e-6)


def call_session(shared: Shared, rng: np.random.Generator) -> None:
    with shared.plain.session() as s:
        a = rng.standard_normal((7, 5), np.float32)
        np.testing.assert_allclose(s({"input.1": a})["y"], a + W, rtol=1e-6)


def count(shared: Shared, rng: np.random.Generator) -> None:
    """A session of its own counts alone."""
    with shared.counter.session() as s:
        for _ in range(5):
            s.entries["step"](x=np.ones(SIZE, np.float32))
        np.testing.assert_array_equal(s.state["s"], np.full(SIZE, 5))


def count_together(shared: Shared, rng: np.random.Generator) -> None:
    """A shared one counts in whole steps."""
    s = shared.sessions[int(rng.integers(len(shared.sessions)))]
    s.entries["step"](x=np.ones(SIZE, np.float32))
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
        exe.close()
        try:
            s.entries["step"](x=np.ones(SIZE, np.float32))
        except li.DeviceError as e:
            assert str(e) == "the session is closed"
        else:
            raise AssertionError("a session outlived its executable")


def close_one(shared: Shared, rng: np.random.Generator) -> None:
    owner: Executable | Session = [shared.plain, shared.counter, *shared.sessions][int(rng.integers(4))]
    if rng.random() < 0.2:
        owner.close()


ACTS: list[Callable[[Shared, np.random.Generator], None]] = [
    call, call_session, count, count_together, save_and_load, reset, open_and_close, close_one,
]  # fmt: skip


def trial(rng: np.random.Generator, number: int) -> str:
    """Two to six threads do a dozen acts each."""
    shared = Shared(str(rng.choice(["local-sync", "local-task"])))
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
    return "some closed" if closed else "none closed"


if __name__ == "__main__":
    campaign.main(trial, seconds=60)

"""Forks at random times while threads call, stream and load; what the child does then, and with which code it ends.

`python tests/campaigns/forks.py --seconds 60 [--seed S] [--trial K]`
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

import campaign
import handmade
import numpy as np

import lstm_ir as li
from lstm_ir.backends.run.executable import Executable

LIMIT = 15  # seconds of one child
REFUSED = "a forked child cannot use executables of its parent"


@cache
def executables() -> dict[str, Executable]:
    """Two of the handmade module, and one with state."""
    x, s = li.input("x", (64,)), li.input("s", (64,))
    graph = li.Graph("count", [x, s], {"y": x + s, "z": x + 1.0})
    made = {d: handmade.load("cpu", driver=d) for d in ("local-sync", "local-task")}
    return {**made, "state": li.compile(li.stateful(graph, {"s": "y"}))}


def work(kind: str) -> None:
    """One piece of work of a thread."""
    exe = executables()["state" if kind in ("step", "save") else kind.partition(" ")[0]]
    a = np.ones((2000, 5), np.float32)
    if kind == "step":
        exe.entries["step"](x=a.ravel()[:64])
    elif kind == "save":
        exe.save_state(f"{threading.get_ident()}.safetensors")
    elif kind.endswith("load"):
        handmade.load("cpu", driver=exe.device).close()
    elif kind.endswith("session"):
        with exe.session() as s:
            s({"input.1": a})
    else:
        exe({"input.1": a})


KINDS = [f"{d}{what}" for d in ("local-sync", "local-task") for what in ("", " load", " session")] + ["step", "save"]


def acts(exe: Executable) -> dict[str, Callable[[], Any]]:
    """What a child tries; those that are refused raise."""
    entry = "step" if exe.signature.state else "weight"
    given = {"x": np.ones(64, np.float32)} if entry == "step" else {}
    return {
        "call": lambda: exe.entries[entry](given),
        "session": exe.session,
        "load": lambda: handmade.load("cpu"),
        "save": lambda: exe.save_state("child.safetensors"),
        "reset": exe.reset,
        "close": exe.close,
        "collect": gc.collect,
        "interpret": lambda: li.interpret(li.Graph("g", [x := li.input("x", (2,))], {"y": x + x}), x=[1, 2]),
    }


def child(exe: Executable, names: list[str], code: int, ends: str) -> NoReturn:
    """The child's life."""
    signal.alarm(LIMIT)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for name in names:
        try:
            acts(exe)[name]()
            assert name in ("close", "collect", "interpret"), f"{name} was not refused"
        except li.DeviceError as e:
            if REFUSED not in str(e):
                traceback.print_exc()
                os._exit(90)
        except BaseException:
            traceback.print_exc()
            os._exit(91)
    executables.cache_clear()
    del exe
    if ends == "_exit":
        os._exit(code)
    sys.exit(code)


def trial(rng: np.random.Generator, number: int) -> str:
    """Threads work, one or two children are forked meanwhile; each does some acts and ends with its own code."""
    everything = executables()
    kinds = list(rng.choice(KINDS, int(rng.integers(1, 4))))
    stop = threading.Event()
    faults: list[str] = []

    def forever(kind: str) -> None:
        while not stop.is_set():
            try:
                work(kind)
            except Exception:
                faults.append(traceback.format_exc(limit=-4))
                return

    threads = [threading.Thread(target=forever, args=(str(k),)) for k in kinds]
    for t in threads:
        t.start()
    try:
        for _ in range(int(rng.integers(1, 3))):
            time.sleep(float(rng.uniform(0, 0.02)))
            exe = everything[str(rng.choice(list(everything)))]
            names = list(map(str, rng.permutation(list(acts(exe)))[: int(rng.integers(1, 6))]))
            code, ends = int(rng.integers(0, 80)), str(rng.choice(["exit", "exit", "_exit"]))
            pid = os.fork()
            if pid == 0:
                try:
                    child(exe, names, code, ends)
                except SystemExit:
                    raise
            got = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            assert got == code, f"threads {kinds}, child {names}, {ends}({code}): ended with {got}"
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert not faults, faults[0]
    return f"{len(kinds)} threads"


if __name__ == "__main__":
    campaign.main(trial, seconds=60)

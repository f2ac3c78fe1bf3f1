"""What a forked child may do with executables of its parent, whose threads hold every lock at the fork.

Prints a line for each act: what it raised, or nothing; then the exit code of the child.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import handmade
import numpy as np

import lstm_ir as li
from lstm_ir.backends import module
from lstm_ir.backends.run import runtime

x = li.input("x", (4,))
state = li.input("s", (4,))
counter = li.stateful(li.Graph("count", [x, state], {"y": x + state, "z": x + 1.0}), {"s": "y"})


def main(folder: str) -> None:
    exe = handmade.load("cpu", driver="local-task")
    kept = li.compile(counter)
    session, a = kept.session(), np.ones(4, np.float32)
    exe.entries["weight"](), session.entries["step"](x=a), kept.entries["step"](x=a)
    held, forks = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as locks:
            for owner in (exe, kept, session):
                locks.enter_context(owner._calls.lock)
            for one in (exe, kept):
                locks.enter_context(one._opening)
            locks.enter_context(module._uncollected())
            locks.enter_context(runtime._lock)
            held.set()
            forks.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    acts: dict[str, Callable[[], Any]] = {
        "first call": lambda: exe.entries["twice"](a=a),
        "call": lambda: exe.entries["weight"](),
        "step": lambda: session.entries["step"](x=a),
        "read": lambda: session.state["s"],
        "write": lambda: session.state.update(s=a),
        "save": lambda: session.save_state(Path(folder) / "s"),
        "open a session": exe.session,
        "load": lambda: li.load("m.lirpkg"),
        "compile": lambda: li.compile(counter),
        "reset": session.reset,
        "profile": lambda: exe.profile("weight", {}),
        "close a session": session.close,
        "close": exe.close,
        "collect": lambda: None if gc.isenabled() else sys.exit("nobody collects garbage"),
    }
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # it hangs
        for name, act in acts.items():
            try:
                act()
                print(f"{name}: nothing", flush=True)
            except li.DeviceError as e:
                print(f"{name}: {str(e).partition(' of its parent')[0]}", flush=True)
        acts.clear()
        del exe, session, act
        gc.collect()
        sys.exit(5)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    forks.set()
    thread.join()
    for one in (session, kept):  # the parent goes on
        one.entries["step"](x=a)
        print(one.state["s"][0])


if __name__ == "__main__":
    main(sys.argv[1])

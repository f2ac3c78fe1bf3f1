"""Child processes that end with this one, however it ends."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lstm_ir.backends import process

_START = Path(__file__).with_name("start_child.py")
_GRACE = 10  # seconds after its time limit, which this process keeps while it lives
_MOST = 1 << 30  # seconds
_running: set[subprocess.Popen[bytes]] = set()


def bounded(command: Sequence[str], seconds: float) -> list[str]:
    """The command line that runs `command` for `seconds`, or as long as the calling thread, at most."""
    if not sys.executable or getattr(sys, "frozen", False):  # a program that holds Python, which is none itself
        return list(command)
    limit = min(math.ceil(seconds) + _GRACE, _MOST) if math.isfinite(seconds) else 0
    return [sys.executable, "-I", "-S", str(_START), str(os.getpid()), str(limit), *command]


def start(command: Sequence[str], seconds: float, folder: str) -> subprocess.Popen[bytes]:
    """`command` in a process group of its own, in `folder`, which is its TMPDIR; stderr is a pipe."""
    child = subprocess.Popen(
        bounded(command, seconds),
        cwd=folder,
        env={**os.environ, "TMPDIR": folder},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    _running.add(child)
    return child


def stop(child: subprocess.Popen[bytes]) -> None:
    """End it and its children, if it runs; nothing of it is left."""
    _kill(child)
    child.wait()
    if child.stderr is not None:
        child.stderr.close()
    _running.discard(child)


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)


def _kill_all() -> None:
    for child in _running.copy():
        _kill(child)


process.at_end(interrupt=_kill_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_running.clear)  # they are the parent's

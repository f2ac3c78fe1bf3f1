"""Cold starts: seconds from the start of a process to its first result."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from lstm_ir.ir.errors import DeviceError

STARTS = 3  # of each; the median counts
LIMIT = 300.0  # seconds of one process
OURS = """\
import numpy
import lstm_ir as li
exe = li.load({package!r}, {module!r})
with numpy.load({arrays!r}) as given:
    exe(dict(given))
"""
DONE = "a result is there"


def ours_cold(package: Path, arrays: Path, module: str | None = None) -> str:
    """Python code that loads a package, or one of its modules, and calls it once."""
    return OURS.format(package=str(package), arrays=str(arrays), module=module)


def cold_starts(codes: Mapping[str, str]) -> dict[str, float]:
    """The median of several starts by name, in turn; each code runs in a process of its own."""
    return {n: median(seconds) for n, seconds in start_seconds(codes, STARTS).items()}


def start_seconds(codes: Mapping[str, str], starts: int) -> dict[str, list[float]]:
    """The seconds of each start, by name; the codes take turns."""
    found: dict[str, list[float]] = {n: [] for n in codes}
    for _ in range(starts):
        for name, code in codes.items():
            found[name].append(_start(name, code))
    return found


def _start(name: str, code: str) -> float:
    """Seconds until the child says that it has a result; what its end takes does not count."""
    # The child finds the same modules, wherever they were found from.
    whole = f"import sys\nsys.path[:] = {sys.path!r}\n{code}print({DONE!r}, flush=True)\n"
    begin = time.perf_counter()
    said = tempfile.TemporaryFile("w+", errors="replace")  # a pipe that nobody reads would stop the child
    command = [sys.executable, "-c", whole]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, text=True)
    watch = threading.Timer(LIMIT, child.kill)
    watch.start()
    assert child.stdout is not None
    try:
        line = next((text for text in child.stdout if text.strip() == DONE), "")
        seconds = time.perf_counter() - begin
        child.wait()
        said.seek(0)
        err = said.read().strip().splitlines()
    finally:
        watch.cancel()
        child.kill()
        child.wait()
        child.stdout.close()
        said.close()
    if not line:
        last = (err or [f"exit code {child.returncode}"])[-1]
        raise DeviceError(f"the cold start of {name} failed, or took more than {LIMIT:g} s: {last}")
    return seconds

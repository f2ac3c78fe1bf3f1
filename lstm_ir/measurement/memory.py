"""Resident memory of this process, in bytes: what it has, and the most that it had since the peak was set back."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_PEAK = "5"  # what the system takes as the word to set the peak back


def set_back() -> int:
    """What is resident now; from here on `peak` is of what comes later.

    Where the system does not set the peak back, it is the peak so far.
    """
    try:
        _CLEAR.write_text(_PEAK, encoding="ascii")
    except OSError:
        return peak()
    return _status("VmRSS")


def peak() -> int:
    """The most since the last `set_back`, or since the process began."""
    if _STATUS.is_file():  # getrusage counts the parent's peak too where it forked
        return _status("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _status(field: str) -> int:
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))

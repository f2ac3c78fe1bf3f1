"""How much memory a process may use."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

# Of a container, by version of the kernel's control groups; its own group is mounted here.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def usable_bytes() -> int | None:
    """The machine's memory, or less where a container says so; None where neither is known."""
    found = []
    with suppress(AttributeError, ValueError, OSError):  # no such call on Windows
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # "max" is no number
            found.append(int(Path(path).read_text(encoding="ascii")))
    return min((n for n in found if n > 0), default=None)

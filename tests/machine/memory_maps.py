"""What memory a process has, as Linux counts it."""

from __future__ import annotations

import re
from pathlib import Path

_HEAD = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+ *(.*)")
KINDS = ("Rss", "Pss", "Private_Clean", "Private_Dirty")


def kilobytes(pid: int, name: str | None = None) -> dict[str, int]:
    """kB of each kind: resident, its share of what is shared, and what is its own; of all, or of files so named."""
    out = dict.fromkeys(KINDS, 0)
    file = ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if (head := _HEAD.fullmatch(line)) is not None:
            file = head[1]
            continue
        kind, _, rest = line.partition(":")
        if kind in out and (name is None or Path(file).name == name):
            out[kind] += int(rest.split()[0])
    return out

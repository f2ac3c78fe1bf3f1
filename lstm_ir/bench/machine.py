"""The machine that figures are taken on."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine() -> str:
    """The processor's name and how many cores this process may use."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        lines = info.read_text(encoding="utf-8", errors="replace").splitlines()
        names = [text.partition(":")[2].strip() for text in lines if text.startswith("model name")]
        name = names[0] if names else name
    return f"{name}, {cores()} cores, {platform.system()}"

"""Puts tests/machine/ordered_vulkan.c between IREE's Vulkan driver and Mesa's, where a C compiler is here.

It keeps signals in order and lets waiting threads sleep (docs/hardware.md).

It must be loaded before the first Vulkan device is opened: IREE asks for libvulkan.so.1, and gets
the library of that name that the process already has.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


_loaded: list[ctypes.CDLL] = []


def left_out() -> int:
    """Signals of this process that would have gone backwards."""
    return sum(int(ctypes.c_ulong.in_dll(library, "left_out").value) for library in _loaded)


@cache
def load() -> str:
    """Empty where it stands in front of the driver, or why not."""
    compiler, real = shutil.which("cc") or shutil.which("gcc"), _real()
    if sys.platform != "linux" or real is None:
        return "there is no libvulkan.so.1"
    if compiler is None:
        return "there is no C compiler"
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "libvulkan.so.1"
        command = [
            compiler, "-O1", "-shared", "-fPIC", f'-DREAL="{real}"', "-Wl,-soname,libvulkan.so.1",
            str(SOURCE), "-o", str(library), "-lpthread", "-ldl",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{compiler}: {done.stderr.strip()[:200]}"
        _loaded.append(ctypes.CDLL(str(library), mode=os.RTLD_NOW | os.RTLD_GLOBAL))
    return ""


def _real() -> str | None:
    """The path of the real library, which must not be loaded to find it."""
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    try:
        listed = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = re.search(r"libvulkan\.so\.1 \(.*\) => (\S+)", listed.stdout)
    return None if found is None else found[1]

"""Memory that a CPU's calls have freed, results among it, which later calls of equal sizes take again.

What the C library gives back to the system at the end of a call comes without pages at the next one: a convolution
with 1.2 MB of results takes 1.95 ms in a process where that happens, 0.64 with its memory kept. IREE's allocator keeps
buffers of equal size, up to a number of buffers and of bytes; one buffer of more stays until the next one is made. It
takes no old one off its list, so all are let go after so many new combinations of sizes, and where a session is closed.
"""

from __future__ import annotations

import ctypes
from typing import Any

from lstm_ir.backends import bindings
from lstm_ir.backends.run.machine_memory import usable_bytes
from lstm_ir.backends.run.tuned import FREED_COUNT, FREED_LEAST, FREED_MOST, FREED_SHAPES, FREED_SHARE


class _Counts:
    def __init__(self) -> None:
        self.shapes = 0  # new combinations of sizes since the start


_devices: list[Any] = []
_seen = _Counts()


def device(driver: Any, word: str) -> Any:
    """The driver's device, with such memory.

    It is never freed: arrays that the interpreter drops after it, as those of `sys`, return their memory to it.
    """
    made = driver.create_device_by_uri(word, [f"caching:*=*;{kept_bytes()};{FREED_COUNT}"])
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    _devices.append(made)
    return made


def kept_bytes() -> int:
    """What is in use or kept, at most, where something is kept."""
    usable = usable_bytes()
    return FREED_LEAST if usable is None else min(max(usable // FREED_SHARE, FREED_LEAST), FREED_MOST)


def leave() -> None:
    """At the end of the process: the bindings would list the devices."""
    if _devices:
        bindings.native().disable_leak_checker()


def seen_shapes() -> None:
    """A combination of sizes that an entry has no plan for."""
    _seen.shapes += 1
    if _seen.shapes % FREED_SHAPES == 0:
        release()


def release() -> None:
    """Give back to the system what no array uses."""
    for made in _devices:
        made.allocator.trim()

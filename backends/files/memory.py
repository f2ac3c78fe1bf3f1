"""Memory as the runtime takes it: aligned, and as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

ALIGNMENT = 64  # bytes; compiled code assumes it of every buffer

Array = np.ndarray[Any, Any]


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An uninitialised array whose data is aligned for the runtime."""
    size = dtype.itemsize
    for n in shape:
        size *= n
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def bytes_of(a: Array) -> Array:
    """The memory of a contiguous array as uint8, without a copy."""
    return a.reshape(-1).view(np.uint8)

"""Memory as the runtime takes it: aligned, and as bytes; and filled from files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from lstm_ir.ir.dims import LIMIT
from lstm_ir.ir.errors import PackageError

ALIGNMENT = 64  # bytes; compiled code assumes it of every buffer
LINE = 64  # bytes of a cache line, and of the widest vector
RANK = 32  # axes at most
ARRAYS = 100_000  # of one file, at most
_PIECE = 1 << 20  # bytes read at once

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


def size_of(shape: Sequence[int], itemsize: int, where: str) -> int:
    """Bytes of an array of this shape; PackageError for a shape that no array has."""
    size, widest = itemsize, itemsize  # NumPy bounds the product of what is not 0, too
    for n in shape:
        size *= n
        widest *= max(n, 1)
    if len(shape) > RANK or min(shape, default=0) < 0 or widest >= LIMIT:
        raise PackageError(f"{where}: no array has the shape {str(list(shape))[:80]}")
    return size


def fill(a: Array, f: BinaryIO, where: str) -> Array:
    """`a`, a contiguous array, with the next bytes of `f` in it."""
    place = bytes_of(a).data
    done = 0
    while done < len(place):
        data = f.read(min(_PIECE, len(place) - done))
        if not data:
            raise PackageError(f"{where}: the file ends too early")
        place[done : done + len(data)] = data
        done += len(data)
    return a

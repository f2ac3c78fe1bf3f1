"""The .npy format, of a file or of a member of a .npz: numbers alone, sizes known beforehand.

NumPy's own reader evaluates the header as Python text of any length, and element types with it.
"""

from __future__ import annotations

import ast
import re
from typing import BinaryIO

import numpy as np

from lstm_ir.backends.memory import Array, empty, fill, size_of
from lstm_ir.ir.errors import PackageError
from lstm_ir.ir.input_file import reading

_MAGIC = b"\x93NUMPY"
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4}  # of the header's length, by version; later ones are for records
_HEADER = 10_000  # bytes, as NumPy bounds it
_TYPE = re.compile(r"\|b1|[<>|=]?[iu][1248]|[<>=]?f[248]")


def read(path: object) -> Array:
    """The array of a .npy file; PackageError for anything else."""
    with reading(path, "a .npy file") as (f, size):
        return read_from(f, size, str(path))


def read_from(f: BinaryIO, size: int, where: str) -> Array:
    """The array in the `size` bytes that follow in `f`."""
    shape, fortran, dtype, start = _header(f, where)
    count = size_of(shape, 1, where)
    if size_of(shape, dtype.itemsize, where) != size - start:
        raise PackageError(f"{where}: shape {shape} of {dtype} does not fit {size} bytes")
    flat = fill(empty((count,), dtype), f, where)
    if dtype.kind == "b" and count and int(flat.view(np.uint8).max()) > 1:
        raise PackageError(f"{where}: a boolean that is neither 0 nor 1")
    shaped = flat.reshape(shape, order="F" if fortran else "C")
    return np.require(shaped, dtype=dtype.newbyteorder("="), requirements="C")


def _header(f: BinaryIO, where: str) -> tuple[tuple[int, ...], bool, np.dtype[np.generic], int]:
    """Shape, order, element type, and the number of bytes before the data."""
    start = f.read(len(_MAGIC) + 2)
    version = tuple(start[len(_MAGIC) :])
    if start[: len(_MAGIC)] != _MAGIC or len(version) != 2:
        raise PackageError(f"{where}: not a .npy file")
    if version not in _LENGTH_BYTES:
        raise PackageError(f"{where}: .npy version {version[0]}.{version[1]}")
    width = _LENGTH_BYTES[version]
    length = int.from_bytes(f.read(width), "little")
    text = f.read(length) if length <= _HEADER else b""
    if len(text) != length:
        raise PackageError(f"{where}: the header is cut off, or longer than {_HEADER} bytes")
    try:
        found = ast.literal_eval(text.decode("ascii"))
        descr, fortran, shape = (found.pop(k) for k in ("descr", "fortran_order", "shape"))
        sound = not found and type(fortran) is bool and type(shape) is tuple and all(type(n) is int for n in shape)
    except (ValueError, SyntaxError, TypeError, AttributeError, KeyError, RecursionError, MemoryError) as e:
        raise PackageError(f"{where}: a damaged header: {str(e)[:200]}") from e
    if not sound:
        raise PackageError(f"{where}: a damaged header: {text[:80]!r}")
    if isinstance(descr, str) and "O" in descr:
        raise PackageError(f"{where}: pickled Python objects are refused")
    if not isinstance(descr, str) or not _TYPE.fullmatch(descr):
        raise PackageError(f"{where}: element type {str(descr)[:80]!r}")
    return shape, fortran, np.dtype(descr), len(start) + width + length

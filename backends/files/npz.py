"""Reading `.npz` weight files that may come from anybody: no pickle, sizes known beforehand."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.lib import format as npy

from lstm_ir.backends.files.memory import Array, empty
from lstm_ir.ir.dims import LIMIT
from lstm_ir.ir.errors import PackageError


def read(path: Path) -> dict[str, Array]:
    """Every array of the file, by name."""
    out: dict[str, Array] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                name = info.filename.removesuffix(".npy")
                if name == info.filename or name in out:
                    raise PackageError(f"{path}: {info.filename!r} is not one array's only file")
                with archive.open(info) as f:
                    out[name] = _array(cast(BinaryIO, f), info, f"{path}: {name}")
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as e:
        raise PackageError(f"{path}: a damaged .npz file: {e}") from e
    return out


def _array(f: BinaryIO, info: zipfile.ZipInfo, where: str) -> Array:
    try:
        version = npy.read_magic(f)
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        if version not in read_header:
            raise PackageError(f"{where}: .npy version {version}")
        shape, fortran, dtype = read_header[version](f)
    except PackageError:
        raise
    except Exception as e:  # NumPy parses the header as Python text: many errors are possible
        raise PackageError(f"{where}: a damaged header: {str(e)[:200]}") from e
    if dtype.hasobject:
        raise PackageError(f"{where}: pickled Python objects are refused")
    if dtype.kind not in "fiub":
        raise PackageError(f"{where}: element type {dtype}")
    count = 1
    for n in shape:
        count *= n
    if min(shape, default=0) < 0 or count >= LIMIT:
        raise PackageError(f"{where}: shape {shape}")
    # The header's claim must equal what the archive says is there, before memory is taken.
    if count * dtype.itemsize != info.file_size - f.tell():
        raise PackageError(f"{where}: shape {shape} of {dtype} does not fit {info.file_size} bytes")
    out = empty((count,), dtype)
    place = out.view(np.uint8).data
    done = 0
    while done < len(place):
        data = f.read(min(1 << 20, len(place) - done))
        if not data:
            raise PackageError(f"{where}: the file ends too early")
        place[done : done + len(data)] = data
        done += len(data)
    shaped = out.reshape(shape, order="F" if fortran else "C")
    return np.require(shaped, dtype=dtype.newbyteorder("="), requirements="C")

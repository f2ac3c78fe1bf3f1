"""Reading `.npz` weight files that may come from anybody: no pickle, and a bound on what they inflate to."""

from __future__ import annotations

import zipfile
from typing import BinaryIO, cast

from lstm_ir.backends.files import npy
from lstm_ir.backends.memory import ARRAYS, Array
from lstm_ir.ir.errors import PackageError
from lstm_ir.ir.input_file import reading

# Deflate makes zeros a thousand times smaller. Arrays may take so many bytes in all:
ANY = 64 << 20  # of a file of any size
RATIO = 32  # or this times the file's size
_MAGIC = (b"PK\3\4", b"PK\5\6")  # of a member, of the end of an empty archive
_HOW = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # as NumPy writes; Python inflates others without bounds


def read(path: object) -> dict[str, Array]:
    """Every array of the file, by name; PackageError for anything else."""
    with reading(path, "a .npz file") as (file, size):
        if file.read(4) not in _MAGIC:  # zips may begin with anything; those that NumPy reads do not
            raise PackageError(f"{path}: not a .npz file")
        out: dict[str, Array] = {}
        with zipfile.ZipFile(file) as archive:
            for name, info in _members(archive, size, str(path)).items():
                with archive.open(info) as f:  # gives no more bytes than the member claims
                    out[name] = npy.read_from(cast(BinaryIO, f), info.file_size, f"{path}: {name}")
        return out


def _members(archive: zipfile.ZipFile, size: int, where: str) -> dict[str, zipfile.ZipInfo]:
    """The members by the names of their arrays; what they claim to inflate to is within the bounds."""
    out: dict[str, zipfile.ZipInfo] = {}
    infos = archive.infolist()
    if len(infos) > ARRAYS:
        raise PackageError(f"{where}: {len(infos)} arrays; at most {ARRAYS} are read")
    room = max(ANY, RATIO * size)
    total = sum(info.file_size for info in infos)
    if total > room:
        raise PackageError(
            f"{where}: {size} bytes that inflate to {total}; at most {room} are read. "
            "np.savez, which packs nothing, has no such bound"
        )
    for info in infos:
        name = info.filename.removesuffix(".npy")
        if name == info.filename or name in out:
            raise PackageError(f"{where}: {info.filename!r} is not one array's only file")
        if info.compress_type not in _HOW:
            raise PackageError(f"{where}: {name} is packed by method {info.compress_type}; expected deflate")
        out[name] = info
    return out

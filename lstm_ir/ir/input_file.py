"""Files that are read: regular ones, whose size is known before they are."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from lstm_ir.ir.errors import LstmIrError, PackageError
from lstm_ir.ir.foreign_errors import become


@contextmanager
def reading(
    path: object, what: str, error: type[LstmIrError] = PackageError, name: str | None = None
) -> Iterator[tuple[BinaryIO, int]]:
    """The file and its size in bytes. What is wrong with it, there or within, is an `error` that names `path`.

    what: as in "a package". name: what the error calls the file, instead of its path. Devices, pipes and folders are
    refused: their size is not known, and a pipe may never end or never begin.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise error(f"the path of {what} is {path!r:.80}, which is no path")
    name = os.fspath(path) if name is None else name
    with become(error, name, f"not {what}, or a damaged one"):
        with open(path, "rb", opener=_at_once) as f:
            found = os.fstat(f.fileno())  # of what was opened: the name may lead elsewhere by now
            if not stat.S_ISREG(found.st_mode):
                raise error(f"{name}: not a regular file: {what} is read from a file on disk")
            yield f, found.st_size


def content(path: Path, what: str, most: int, error: type[LstmIrError]) -> bytes:
    """All bytes of a file of at most so many; an `error` that calls it by its name without folders."""
    with reading(path, what, error, path.name) as (f, size):
        if size > most:
            raise error(f"{path.name}: {what} has {size} bytes, more than {most}")
        return f.read(size)


def _at_once(path: str, flags: int) -> int:
    """Without O_NONBLOCK a pipe waits for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)

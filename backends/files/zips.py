"""Zip archives that may come from anybody: the list of their members is bounded before it is read.

Python's zipfile makes an object of each entry of that list, as many as the file has, before anybody can ask how many
there are.
"""

from __future__ import annotations

import os
import zipfile
from typing import BinaryIO

from lstm_ir.ir.errors import PackageError


class _Bounded:
    """A file, as zipfile reads it; while `most` is set, a read that asks for more bytes is a PackageError."""

    def __init__(self, f: BinaryIO, size: int, most: int, where: str) -> None:
        self._f, self._size, self._where = f, size, where
        self.most: int | None = most

    def read(self, n: int = -1, /) -> bytes:
        """So many bytes; all that follow for a negative number."""
        wanted = max(0, self._size - self._f.tell()) if n < 0 else n
        if self.most is not None and wanted > self.most:
            raise PackageError(
                f"{self._where}: the list of its members has {wanted} bytes; at most {self.most} are read"
            )
        return self._f.read(n)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """As of the file."""
        return self._f.seek(offset, whence)

    def tell(self) -> int:
        """As of the file."""
        return self._f.tell()

    def seekable(self) -> bool:
        """As of the file."""
        return True


def opened(f: BinaryIO, size: int, most: int, where: str) -> zipfile.ZipFile:
    """The archive; PackageError for one whose list of members has more than `most` bytes.

    What zipfile itself asks for is bounded, not what a record says: there are several, and readers differ in which
    they believe.
    """
    bounded = _Bounded(f, size, most, where)
    archive = zipfile.ZipFile(bounded)
    bounded.most = None
    return archive

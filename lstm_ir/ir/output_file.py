"""Files that are written in one step, or not at all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from lstm_ir.ir.temporary import new_file


@contextmanager
def replacing(path: str | Path, *, mode: int = 0o666, durable: bool = True) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `path` at the end, or disappears.

    It keeps the mode of the file that it replaces, and its owner where the system lets it; a new one has `mode`
    without the bits of the umask. The target of a symbolic link is replaced, not the link; other hard links keep
    the old file. What is no file (a device, a pipe) is written itself. durable: it is on the disk before it takes
    the place. OSError names `path`.
    """
    try:
        old = os.stat(path)
    except (OSError, ValueError):
        old = None  # not there, or the attempt to write says why
    try:
        if old is not None and not stat.S_ISREG(old.st_mode):
            with open(path, "wb") as through:
                yield through
            return
        file = Path(os.path.realpath(path))
        with new_file(file.parent, mode if old is None else 0o600) as f:
            yield f
            f.flush()
            if old is not None:
                _make_like(f.fileno(), old)
            if durable:
                os.fsync(f.fileno())
            os.replace(f.name, file)
    except ValueError as e:
        if "null" not in str(e):
            raise
        raise OSError(22, "a path holds no null character", str(path)) from None
    except OSError as e:
        raise OSError(e.errno, e.strerror, str(path)) from e


def check_folder(path: str | Path) -> None:
    """OSError where no folder is there for the file, as `replacing` would raise it: before work, not behind it."""
    try:
        folder = Path(os.path.realpath(path)).parent
    except ValueError:  # no path: the attempt to write says why
        return
    except OSError as e:  # the working folder is gone
        raise OSError(e.errno, e.strerror, str(path)) from e
    if not folder.is_dir():
        number = errno.ENOTDIR if folder.exists() else errno.ENOENT
        raise OSError(number, os.strerror(number), str(path))


def _make_like(handle: int, old: os.stat_result) -> None:
    """Give the open file the owner and the mode of `old`, as far as this user may."""
    if not hasattr(os, "fchown"):
        return
    new = os.fstat(handle)
    for owner, group in ((old.st_uid, old.st_gid), (-1, old.st_gid)):
        if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
            with suppress(OSError):
                os.fchown(handle, owner, group)
                new = os.fstat(handle)
    mode = old.st_mode & 0o777
    if new.st_gid != old.st_gid:  # another group gets no more than everybody
        mode = mode & ~0o070 | (mode & 0o007) << 3
    with suppress(OSError):  # a disk without modes
        os.fchmod(handle, mode)

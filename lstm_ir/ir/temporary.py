"""Temporary files and folders that say whether their writer lives: he holds a lock on them, which dies with him.

So what a killed process left is known for sure, and the next writer to the same folder removes it. A new file is
nobody's until its writer has its lock: who removes takes the lock first, and a writer looks, once he has it,
whether his file is still there. Where the system or the disk has no such locks nothing is removed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

_OURS = r"\.?lstm-ir-[0-9a-f]{16}\.tmp"
_TRIES = 100


def _name() -> str:
    return f"lstm-ir-{os.urandom(8).hex()}.tmp"


def is_ours(name: str) -> bool:
    """Whether a file or folder of this name is one that this module makes."""
    return re.fullmatch(_OURS, name) is not None


@contextmanager
def new_file(folder: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file in `folder` with a name of its own, which is gone at the end unless it was renamed.

    Its mode is `mode` without the bits of the umask.
    """
    remove_dead(folder)
    for _ in range(_TRIES):
        path = folder / f".{_name()}"
        with open(path, "xb", opener=lambda p, flags: os.open(p, flags, mode)) as f:
            if _held(f.fileno(), path) is False:
                continue
            try:
                yield f
            finally:
                with suppress(OSError):
                    path.unlink()
            return
    raise OSError(11, "other processes remove every temporary file", str(folder))


@contextmanager
def new_folder(base: Path | None = None) -> Iterator[Path]:
    """A folder of this user alone in `base`, or among the system's temporary files, which is gone at the end."""
    import tempfile  # of writers alone: who loads a package does without

    base = base or Path(tempfile.gettempdir())
    remove_dead(base)
    for _ in range(_TRIES):
        path = base / _name()
        path.mkdir(mode=0o700)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        ours = False
        try:
            ours = _held(handle, path) is not False
            if ours:
                yield path
                return
        finally:
            os.close(handle)  # before the folder goes: to remove it takes a descriptor, which may be the last
            if ours:
                _remove(path)
    raise OSError(11, "other processes remove every temporary folder", str(base))


def _remove(folder: Path) -> None:
    """What can be removed of a folder of this user alone, with one descriptor where there are no more."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        with suppress(OSError):
            for name in os.listdir(folder):
                inside = folder / name
                if inside.is_dir() and not inside.is_symlink():
                    _remove(inside)
                else:
                    inside.unlink()
            folder.rmdir()


def remove_dead(folder: Path) -> None:
    """Remove what dead writers of this user left in `folder`."""
    if fcntl is None:
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for e in entries:
            if is_ours(e.name):
                with suppress(OSError):
                    _remove_if_dead(e)


def _remove_if_dead(entry: os.DirEntry[str]) -> None:
    folder = entry.is_dir(follow_symlinks=False)
    if not folder and not entry.is_file(follow_symlinks=False):
        return
    how = os.O_RDONLY | os.O_DIRECTORY if folder else os.O_RDWR  # NFS locks what can be written
    handle = os.open(entry.path, how | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if os.fstat(handle).st_uid != os.geteuid() or not _held(handle, Path(entry.path)):
            return
        if folder:
            _remove(Path(entry.path))
        else:
            os.unlink(entry.path)
    finally:
        os.close(handle)


def _held(handle: int, path: Path) -> bool | None:
    """Whether this process now holds the lock of the open file, and `path` is its name; None without locks here."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False

"""Files that commands and exports write: in one step, or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `path` at the end, or disappears.

    The target of a symbolic link is replaced, not the link. What is no file (a device, a pipe) is
    written itself. OSError names `path`.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        mode = stat.S_IFREG  # not there, or the attempt to write says why
    try:
        if not stat.S_ISREG(mode):
            with open(path, "wb") as through:
                yield through
            return
        file = Path(os.path.realpath(path))
        temporary = file.with_name(f".{file.name[:100]}-{secrets.token_hex(8)}")
        try:
            with temporary.open("xb") as f:
                yield f
                f.flush()
                os.fsync(f.fileno())
            os.replace(temporary, file)
        finally:
            with suppress(OSError):
                temporary.unlink()
    except ValueError as e:
        if "null" not in str(e):
            raise
        raise OSError(22, "a path holds no null character", str(path)) from None
    except OSError as e:
        raise OSError(e.errno, e.strerror, str(path)) from e

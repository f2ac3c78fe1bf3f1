"""Exceptions of Python, the system and libraries as the project's: one place for what each says."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from lstm_ir.ir.errors import LstmIrError

# What the system says too briefly: which limit was met, and what shows it.
_LIMITS = {
    errno.EAGAIN: "no more processes or threads may be started (ulimit -u)",
    errno.EMFILE: "this process may open no more files (ulimit -n)",
    errno.ENFILE: "this machine may open no more files",
    errno.EFBIG: "a file would be longer than allowed (ulimit -f)",
    errno.ENOMEM: "there is not enough memory (ulimit -v)",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of the disk is used up",
}
_SHOWN = 200  # characters of a foreign message


@contextmanager
def become(error: type[LstmIrError], what: str, otherwise: str = "") -> Iterator[None]:
    """Every exception from within is an `error` that begins with `what`.

    `otherwise` explains those that neither the system nor the project raised. KeyboardInterrupt is none of them.
    """
    try:
        yield
    except error:
        raise
    except Exception as e:
        known = isinstance(e, (OSError, MemoryError, LstmIrError))
        words = [what, reason(e)] if known or not otherwise else [what, otherwise, reason(e)]
        raise error(": ".join(words)) from e


def reason(e: Exception) -> str:
    """What `e` says, with the limit that it met."""
    if isinstance(e, MemoryError):
        return f"{os.strerror(errno.ENOMEM)}: {_LIMITS[errno.ENOMEM]}"
    if isinstance(e, OSError) and e.strerror:
        return f"{e.strerror}: {_LIMITS[e.errno]}" if e.errno in _LIMITS else e.strerror
    text = str(e)[:_SHOWN]
    return text if text else type(e).__name__


def limit_in(messages: str) -> str | None:
    """The limit of the system that a program's messages speak of."""
    for number, meaning in _LIMITS.items():
        if os.strerror(number) in messages:
            return f"{os.strerror(number)}: {meaning}"
    if "std::bad_alloc" in messages or "out of memory" in messages.lower():
        return reason(MemoryError())
    return None

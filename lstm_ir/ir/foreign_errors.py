"""Exceptions of Python, the system and libraries as the project's: one place for what each says."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from lstm_ir.ir.errors import LstmIrError
from lstm_ir.ir.libraries import missing

# What the system says too briefly: which limit was met, and what shows it.
_LIMITS = {
    errno.EAGAIN: "no more processes or threads may be started (ulimit -u, or -v for their stacks)",
    errno.EMFILE: "this process may open no more files (ulimit -n)",
    errno.ENFILE: "this machine may open no more files",
    errno.EFBIG: "a file would be longer than allowed (ulimit -f)",
    errno.ENOMEM: "there is not enough memory (ulimit -v)",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of the disk is used up",
}
_MORE = {  # what programs write instead of the system's words
    errno.EAGAIN: ("Cannot fork", "returned exit code 32512"),  # of a shell that could not start
    errno.ENOMEM: (
        "std::bad_alloc",
        "LLVM ERROR: out of memory",
        "libc allocator failed",
        "failed to map segment",
        "error return without exception set",
    ),  # of Python while it imports
}
_WORDS = {n: (os.strerror(n), *_MORE.get(n, ())) for n in _LIMITS}
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


@contextmanager
def refusals_become(error: type[LstmIrError], what: str) -> Iterator[None]:
    """What the system refuses within (files, memory, processes, libraries) is an `error` that begins with `what`.

    A library that is not installed is a MissingLibraryError. All other exceptions pass.
    """
    try:
        yield
    except ModuleNotFoundError as e:
        found = missing(e)
        if found is None:
            raise
        raise found from e
    except (OSError, MemoryError, ImportError, SystemError) as e:
        handlers = isinstance(e, OSError) and e.errno is None  # a signal handler's, such as TimeoutError
        inner = isinstance(e, SystemError) and limit_in(str(e)) is None
        if handlers or inner or isinstance(e, LstmIrError):
            raise
        file = str(e.filename) if isinstance(e, OSError) and e.filename is not None else ""
        raise error(f"{what}: {reason(e)}" + (f": {file}" if file and file not in what else "")) from e


def reason(e: Exception) -> str:
    """What `e` says, with the limit that it met."""
    if isinstance(e, MemoryError):
        return strerror(errno.ENOMEM)
    if isinstance(e, OSError) and e.strerror:
        return strerror(e.errno or 0, e.strerror)
    return limit_in(str(e)) or str(e)[:_SHOWN] or type(e).__name__


def strerror(number: int, otherwise: str = "") -> str:
    """What the system calls its error `number`, and the limit that it speaks of."""
    if number in _LIMITS:
        return f"{os.strerror(number)}: {_LIMITS[number]}"
    return otherwise or os.strerror(number)


def limit_in(messages: str) -> str | None:
    """The limit of the system that a program's messages speak of."""
    for number, words in _WORDS.items():
        if any(w in messages for w in words):
            return strerror(number)
    return None

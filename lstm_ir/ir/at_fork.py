"""A fork waits for first uses in other threads, which import.

A child lacks the thread that was importing a module, and nobody releases the lock of that module in it: a call that
needs the module would wait for ever.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from typing import Any

WAIT = 60.0  # seconds that a fork waits at most
_PAUSE = 0.001  # seconds
LIBRARIES = frozenset("lstm_ir iree numpy ml_dtypes networkx lark click rich onnx onnx_ir google h5py".split())
"""What this project imports when it first needs it. A program's own modules may be imported for as long as it runs."""

# importlib and logging have no public names for their locks.
_bootstrap: Any = getattr(importlib, "_bootstrap", None)
_imports: Any = getattr(_bootstrap, "_imp", None)  # with the lock that a thread holds to begin an import


def _imported_elsewhere() -> bool:
    """Whether another thread imports one of the libraries, or is about to."""
    locks: dict[str, Any] = getattr(_bootstrap, "_module_locks", {})
    known = LIBRARIES | sys.stdlib_module_names
    held = [ref() for name, ref in list(locks.items()) if name.partition(".")[0] in known]
    mine = threading.get_ident()
    return any(lock is not None and getattr(lock, "owner", mine) != mine for lock in held)


def _before() -> None:
    """Return when nobody else imports, with the lock of imports: the interpreter runs other threads until it forks."""
    end = time.monotonic() + WAIT
    _lock()
    while _imported_elsewhere() and time.monotonic() < end:
        _unlock()
        _pause()
        _lock()


def _pause() -> None:
    """Libraries take logging's lock when they are imported; its own hook may have taken it before this one ran."""
    lock: Any = getattr(sys.modules.get("logging"), "_lock", None)
    held = getattr(lock, "_is_owned", bool)()
    if held:
        lock.release()
    time.sleep(_PAUSE)
    if held:
        lock.acquire()


def _lock() -> None:
    if _imports is not None:
        _imports.acquire_lock()


def _unlock() -> None:
    if _imports is not None:
        _imports.release_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_unlock, after_in_child=_unlock)

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


def _imported_elsewhere() -> bool:
    """Whether another thread imports one of the libraries. importlib has no public name for this."""
    locks: dict[str, Any] = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})
    mine = (None, threading.get_ident())
    known = LIBRARIES | sys.stdlib_module_names
    held = (ref() for name, ref in list(locks.items()) if name.partition(".")[0] in known)
    return any(getattr(lock, "owner", None) not in mine for lock in held)


def _before() -> None:
    end = time.monotonic() + WAIT
    while _imported_elsewhere() and time.monotonic() < end:
        time.sleep(_PAUSE)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before)

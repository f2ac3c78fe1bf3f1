"""How much stack a dispatch may take, and that the threads which run dispatches have it.

The compiler counts a dispatch's arrays on the stack and refuses more than DISPATCH_STACK. What the dispatch
really takes is more: saved and spilled registers, and what the runtime has on the stack before it. IREE's
workers have 128 KiB by default, so a dispatch near the limit ended the process.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lstm_ir.ir.errors import DeviceError

CALLER = 224 << 10  # what a thread has that runs dispatches itself; 147 were touched at most
WORKER = 1 << 20  # of IREE's workers and of helpers; memory that nobody touches costs nothing

_known = threading.local()


def confirm() -> None:
    """DeviceError where the calling thread's stack is too small for dispatches; once per thread."""
    if hasattr(_known, "size"):
        return
    size = _size()
    if size is not None and size < CALLER:
        raise DeviceError(
            f"this thread's stack is {size >> 10} KiB, what runs here needs {CALLER >> 10}; see threading.stack_size"
        )
    _known.size = size


@contextmanager
def enough() -> Iterator[None]:
    """Threads that start inside have a stack for dispatches, whatever threading.stack_size says."""
    chosen = threading.stack_size()
    if chosen == 0 or chosen >= WORKER:  # 0: the system's, of megabytes
        yield
        return
    threading.stack_size(WORKER)
    try:
        yield
    finally:
        threading.stack_size(chosen)


def _size() -> int | None:
    """Bytes of the calling thread's stack, if that can be said."""
    try:
        if sys.platform == "darwin":
            of = ctypes.PyDLL(None)
            of.pthread_self.restype = ctypes.c_void_p
            of.pthread_get_stacksize_np.restype = ctypes.c_size_t
            return int(of.pthread_get_stacksize_np(ctypes.c_void_p(of.pthread_self())))
        return _linux()
    except (AttributeError, OSError, TypeError):
        return None


def _linux() -> int | None:
    of = ctypes.PyDLL(None)
    of.pthread_self.restype = ctypes.c_void_p
    attributes = ctypes.create_string_buffer(128)  # pthread_attr_t has 56 bytes, 64 on aarch64
    if of.pthread_getattr_np(ctypes.c_void_p(of.pthread_self()), attributes):
        return None
    size = ctypes.c_size_t()
    failed = of.pthread_attr_getstacksize(attributes, ctypes.byref(size))
    of.pthread_attr_destroy(attributes)
    return None if failed else size.value

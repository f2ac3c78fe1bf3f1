"""Work that would hold up the event loop is done by a thread, and others are answered meanwhile."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

# Bytes of JSON from which on a thread reads or writes them. Measured on a busy machine of two slow cores: 128 KiB of
# numbers take 4 ms to read and 7 ms to write; a thread that wants Python's lock waits 5 ms.
LARGE = 1 << 17
# Bytes of tensors that take as long as one of JSON: they are copied and looked at by NumPy. Reasoned, not measured.
TENSOR_BYTES = 32

T = TypeVar("T")


class LargeWork:
    """One thread: two that read JSON would keep Python's lock from the event loop in turns."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "lstm-ir large requests")

    async def run(self, text: int, data: int, call: Callable[[], T]) -> T:
        """What `call` gives: at once where it has few bytes of JSON and tensors before it, else by the thread."""
        if text + data // TENSOR_BYTES < LARGE:
            return call()
        return await asyncio.get_running_loop().run_in_executor(self._thread, _emptied, call)


def _emptied(call: Callable[[], T]) -> T:
    """What `call` gives. An error holds no values: those of a JSON that is refused would lie there beside the next."""
    try:
        return call()
    except Exception as e:
        error: BaseException | None = e
        while error is not None:
            traceback.clear_frames(error.__traceback__)
            error = error.__context__
        raise

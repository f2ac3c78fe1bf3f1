"""The queue through which a call publishes its work to helper threads: what stands where.

One array of bytes, with room for one entry, that both sides read and write while a call runs: the kernel of
the caller's thread (`kernels/helpers/publish.py`) and those of helpers (`run/helper_pool.py`), which
are the same compiled code. Words that different threads write are in cache lines of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.backends.memory import LINE, empty

# i32 at the head of a line:
PUBLISHED = 0  # odd while the entry stands; each entry raises it twice
SERVING = 1  # helpers that look at the entry, or work on it
NEXT_GROUP = 2  # the next workgroup that nobody has taken
CLOSED = 3  # not 0: helpers leave; and behind it, as i32:
POLLS, CALL = 49, 50  # what a helper's polls may cost till it leaves; not 0: a call runs
IDLE_POLL = 256  # the cost of a poll while no call runs; else 1
ENTRY = 4  # as i64: kernel, workgroups, then tensors (as distances) and numbers
MOST_ARGUMENTS = 96  # tensors and numbers of an entry
BYTES = LINE * ENTRY + 8 * (2 + MOST_ARGUMENTS) + LINE
SERVE = "lstm_ir.serve"  # the function that a helper runs


def memory() -> np.ndarray[Any, Any]:
    """An empty queue."""
    made = empty((BYTES,), np.dtype(np.uint8))
    made[:] = 0
    return made

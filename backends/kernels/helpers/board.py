"""The memory through which a call offers its work to helper threads: what stands where.

One array of bytes that both sides read and write while a call runs: the kernel of the caller's
thread (`kernels/helpers/offer.py`) and those of helpers (`run/threads/helper_pool.py`), which are the
same compiled code. Words that different threads write are in cache lines of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.backends.files.memory import empty

LINE = 64  # bytes
# i32 at the head of a line:
OPEN = 0  # odd while an offer stands; each offer raises it twice
INSIDE = 1  # helpers that look at an offer, or work on it
NEXT = 2  # the next workgroup that nobody has taken
LEAVE = 3  # not 0: helpers go home; and behind it, as i32:
PATIENCE, BUSY = 49, 50  # what a helper's looks may amount to till it goes home; not 0: a call runs
IDLE = 256  # what a look amounts to where no call runs; else 1
RECORD = 4  # the offer, as i64: kernel, workgroups, then tensors (as distances) and numbers
MOST = 96  # tensors and numbers of one offer
BYTES = LINE * RECORD + 8 * (2 + MOST) + LINE
ATTEND = "lstm_ir.attend"  # the function that a helper runs


def board() -> np.ndarray[Any, Any]:
    """An empty one."""
    made = empty((BYTES,), np.dtype(np.uint8))
    made[:] = 0
    return made

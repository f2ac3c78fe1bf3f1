"""Numbers of a call that were tuned: how long threads wait awake, and from which size on memory is lent or kept.

Each has its unit, and what was measured, that it is reasoned, or that its figure was not kept. Who runs a call is
decided by numbers of its own (`threads/choice.py`).
"""

from __future__ import annotations

# Microseconds that a worker looks for work before it sleeps: between two dispatches of a call. Measured: 10, 20 and
# 100 were slower (docs/performance.md).
SPIN_MICROSECONDS = 5
# Seconds that a helper polls after the last entry: the next call finds it awake. Figure not kept; what helpers gain
# with it stands in docs/performance.md.
IDLE_SECONDS = 400e-6
LENT_BYTES = 128 << 10  # of an input, from which lending its memory beats copying it; figure not kept
KEPT_BYTES = 1 << 20  # of inputs, below which an entry keeps memory between calls; figure not kept
# What a CPU's device keeps of freed memory: bytes that are in use or kept, above which nothing is kept, as a share of
# what the process may use, within bounds; it has two devices. Reasoned: a step of training frees up to 1 GiB.
FREED_SHARE, FREED_LEAST, FREED_MOST = 16, 256 << 20, 2 << 30
# The same, in buffers; and after how many new combinations of sizes all is let go. Reasoned.
FREED_COUNT, FREED_SHAPES = 64, 64
# Bytes of results for which a GPU's executable keeps host memory between calls. Measured on an H100: kept memory made
# 0.4 ms of 2.5, and CUDA takes 1.2 ms to allocate or free it. How much is kept is reasoned.
STAGED_BYTES = 64 << 20

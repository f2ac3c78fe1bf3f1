"""Numbers of the loops that are no kernel, and what they come from."""

from __future__ import annotations

# Rows that the inner loop of a pure StableHLO module fills before the outer one stores them; figure not kept.
CHUNK = 32
# Of one iteration, at most. Measured, before rows were written in place: an LSTM of 100 steps of one row took 0.48
# instead of 1.23 ms at H = 64, and 1.04 instead of 0.85 s to compile (docs/performance.md).
STEPS = 8
NODES = 256  # of one iteration, at most. Reasoned: compile time grows with them
WORK = 4_000_000  # operations of a step above which the loop around it does not matter; figure not kept
# Rows of a product from which columns of wider rows are copied for it. Measured: IREE's compiler takes 0.6 s either
# way up to 32 rows of 16 columns, 0.93 and 0.80 at 64, 1.3 and 0.9 at 128, 3.6 and 0.75 at 1000 (CPU seconds, Zen 4).
CUT_ROWS = 64

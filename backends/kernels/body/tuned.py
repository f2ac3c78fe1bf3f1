"""Numbers of bodies that were tuned: what is written out, what is a loop, and what one worker does alone.

Each has its unit, and what was measured, that it is reasoned, or that its figure was not kept.
"""

from __future__ import annotations

MAX_LEADING = 16  # leading indices (directions, heads) that are written out; more are loops; figure not kept
MAX_CUTS = 32  # joins of a kernel whose order the call decides: its text grows with them; reasoned
MAX_AGAIN = 1  # ops of an element that each turn of a loop in a loop computes anew; reasoned: it reads as much
MAX_CARRIED = 16  # numbers of a loop in a loop: there are as many registers for them; reasoned
# Elements of a result, up to which rows that meet are one row of one worker. Measured, two workers, 50 steps of a sum
# over all pairs of rows and of P P', time of the portable loop by that of the kernel: 3 to 8 below 300 elements, 2.1
# and 1.1 at 512, 1.0 to 1.3 at 1024, 0.8 and 0.95 at 4096.
ONE_ROW = 1024

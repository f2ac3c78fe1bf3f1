"""Numbers of loops that were tuned: from which size on chunks of steps, or all pairs, are the better form.

Each has its unit, and what was measured, that it is reasoned, or that its figure was not kept.
"""

from __future__ import annotations

# Steps of a chunk, about: products inside it grow with it, the states that are written shrink. Figure not kept; what
# chunks of 64 gain stands in docs/passes.md.
CHUNK_STEPS = 64
# The same where decays differ along rows or columns of a state: each pair of steps has K or V decays, C K for a step,
# where the state of a step has K V numbers. Reasoned, not measured.
PAIRED_STEPS = 16
# The same of a delta rule: the rows of the triangular system of a chunk, which a loop of as many steps solves. Measured
# at training steps of the gated delta rule, processor time of the loop over steps by that of chunks of 16 and of 32:
# 1.16 and 1.06 with keys of 32, 2.2 and 2.3 of 64, 2.0 and 3.1 of 128.
DELTA_ROWS = 32
SHORT_KEYS = 64  # below as many numbers in a key chunks of a delta rule have half as many rows; measured likewise
# Numbers in a key from which on a delta rule is differentiated by chunks. Measured, two workers of a quiet Zen 4,
# training steps of the gated delta rule, time of the loop over steps by that of chunks: with keys of 64 1.4 at
# (T,B,H) = (50,8,256), 2.6 at (200,8,256), 4.1 at (1000,1,256), with 128 2.8; with 32 1.15 to 1.29, but in two of eight
# processes 0.5; ready after 4 s in place of 2.
LONG_KEYS = 64
# Numbers of all states of a step from which on a delta rule without kernels is made by chunks. Measured, processor time
# of the loop over steps by that of chunks: 0.65 and 0.71 with 2^15 and 2^17 numbers in 32 matrices, 1.29 and 1.96 with
# 2^19 in 128 and in 32, and 0.75 to 1.15 with 2^12 to 2^14.
LARGE_STATES = 1 << 18
MIN_STEPS = 8  # of a loop by chunks. Reasoned: T = 1 is the form in which a model is served
MIN_STATE = 8  # rows and columns of a matrix state by chunks; figure not kept
# Bytes of all states of a loop from which on its gradient saves them by segments, those of a segment, and how many
# bytes of state there are for each that a step reads or gives (reasoned). Measured, training steps of the selective
# scan, two cores of a Zen 5 with 1 MiB of L2 each and 32 of L3, by the time of saving all: segments of 1, 2, 4 and
# 8 MiB take 0.69, 0.61, 0.85 and 0.91 with 50 MiB of states at (T,B,H) = (100,32,256), 0.63, 0.59, 0.77 and 0.83 with
# 200 at (400,32,256), 0.81, 0.77, 0.76 and 0.80 with 125 at (1000,8,256), 0.96, 0.87, 0.84 and 0.82 with 62 at
# (4000,1,256), 1.03, 0.96, 0.91 and 0.93 with 37 at (600,8,128). With 8 MiB at (1000,1,128) segments lost.
SPILLED_BYTES, SEGMENT_BYTES, STATES_BY_ROWS = 32 << 20, 2 << 20, 4
# Elements that are picked one after another. Reasoned: each is a look at all elements. Figure not kept.
PICKED_ELEMENTS = 16
# Elements that are all compared with one another. Reasoned: two dispatches, and no loop in a loop. Measured at 16 rows
# of 1000 f32: pairs take 77 ms, the network 2.8 (order.py); the figure of where both are equal was not kept.
PAIRED_ELEMENTS = 128
# Steps of a loop inside of another one that are written out, and ops of all its steps. Reasoned: solvers take 4 to 12
# steps; the time to compile grows with the ops.
UNROLLED_STEPS, UNROLLED_NODES = 16, 256
# Products of one weight with rows of one step, from which on its gradient is one product of all of them. Reasoned: a
# kernel's dispatch takes 32 tensors, and rows of its own for each would be two.
JOINED_TERMS = 4

"""Numbers of passes that were tuned: from which size on another form of a graph is the better one.

Each has its unit, and what was measured, that it is reasoned, or that its figure was not kept.
"""

from __future__ import annotations

# Elements of a literal that a pass computes. Reasoned: from 1 KB of f32 on an array counts as a weight.
FOLDED_ELEMENTS = 256
# Tensors of a loop, above which rows that it saves for another loop are joined. Reasoned: a kernel's dispatch takes 32.
# Measured: a gradient that had 19 tensors to join took 1.6 ms as a kernel, 9.3 as a loop (docs/kernels.md).
LOOP_TENSORS = 20
JOINED_ROWS = 8  # rows of one tensor, at most. Reasoned: kernels write out leading indices
NARROW_COLUMNS = 64  # columns below which another axis, twice as wide, is the better one; figure not kept
WIDE_COLUMNS = 16  # columns that are worth a turned body; figure not kept
# Rows of a table for each of its columns, at most, whose product is made once. Reasoned: it takes their memory.
ROWS_BY_COLUMNS = 4
# A product becomes a kernel from so many rows, elements of its matrix, and multiplications on, as in `machine.py` of
# the CPU's kernels: what follows it is computed there. Measured: from 4,096 elements on (`machine.py`).
PRODUCT_ROWS, PRODUCT_ELEMENTS, PRODUCT_WORK = 16, 1 << 12, 1 << 21
EPILOGUE_OPS = 32  # that follow one product. Reasoned: a kernel of more is compiled for longer than it gains
# Rows of a loop, at most, whose scanned rows in 24 bits are multiplied before it where its weights outgrow L2.
# Measured, one thread of a Zen 5, 20 and 100 steps of 512 and 1024 units, time in the loop by time before it: one row
# 1.16 to 1.32, 8 rows 0.92 to 0.99.
BYTES_ROWS = 2
BYTES_HOISTED = 64 << 20  # bytes of such products, at most. Reasoned: as of products of f32 (the CPU's `machine.py`)

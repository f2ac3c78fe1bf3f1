"""Numbers that were tuned: what is known of processors, and from which size on a choice gains.

Each has its unit, and what was measured, that it is reasoned, or that its figure was not kept.
docs/kernels.md has figures, of two cores of an AMD EPYC each, with AVX-512 ("32 registers") and
without ("16 registers").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lstm_ir.ir.target import TargetInfo

# -- memory

STACK = 8 << 10  # bytes of a tile's sums. Reasoned: a dispatch has 32 KB of stack by default
RESIDENT_SHARE = 2  # the part of L2 that carries may take which stay from step to step. Measured: docs/kernels.md
PANEL_SHARE = 8  # the part of L2 that the rows of a panel may take. Reasoned: weights pass beside them
# Steps of a block of rows that a loop's kernel multiplies, at least, where weights outgrow L2. Measured on a Zen 5: 100
# steps of a row of 1024 units, named sizes, take 0.87 of the time by blocks of 32 in place of 8, of 512 units 0.98.
MADE_STEPS = 32
MADE_SHARE = 2  # the part of L2 that rows multiplied by a loop's kernel may take. Reasoned: each block reads them
KEPT_BYTES = 4 << 20  # bytes of scratch that stay in the module; more are a call's own; figure not kept
KEPT_OPEN_BYTES = 1 << 20  # of a loop whose sizes are named. Reasoned: each loop of a module has so many
KEPT_ROWS = 64  # rows of such a loop, at most. Reasoned: 4 us are little of a call of more

# -- register tiles of a loop's products


@dataclass(frozen=True)
class Machine:
    """What is known of targets with so many vector registers."""

    registers: int
    heights: tuple[int, ...]  # of register tiles
    products: int  # of an iteration of the tallest tile, about
    tiles_of_chunk: int  # rows are shared out in chunks of at least so many tiles
    ahead: bool  # asking for weights ahead gains where they are in L3
    outer: int  # rows of a tile of a sum of outer products
    output_tiles: Mapping[int, int]  # of a stencil: places of a tile, by its vectors of outputs
    spare: int  # registers beside sums, weights and a row that products of int8 need, which add to their operand


# Workers take halves of a batch, and a rest of two rows reads its weights as often as eight: with
# many registers heights are powers of two. With few, a member that has all rows and half of the
# columns reads half the weights; and where two processors are threads of one core, what counts is
# how few instructions go with a product. Measured: what tiles and products of
# an iteration gain stands in docs/kernels.md. Without spare registers LLVM moved 22 of 24 sums of a GRU in int8 in each
# iteration, 0.40 ms a step of 8 rows and 1024 units in place of 0.29; with 16 registers they gain nothing.
# A stencil's tile of 6 places by 4 vectors needs 34 registers where LLVM loads all places ahead, and it did so where
# sizes are numbers: convolutions of 128 outputs took 1.2 times as long as with 5 places, 1.28 by x (measured, Zen 5).
MANY = Machine(32, (8, 4, 2, 1), 16, 1, False, 8, {1: 8, 2: 8, 3: 8, 4: 5, 5: 5, 6: 4, 7: 3}, 4)
FEW = Machine(16, (6, 4, 3, 2, 1), 48, 2, True, 4, {1: 8, 2: 6}, 0)  # measured as well


def machine(target: TargetInfo) -> Machine:
    """By the vector registers of the instruction set."""
    arm = target.triple.startswith(("aarch64", "arm64"))
    return MANY if arm or target.vector_bits >= 512 else FEW


# Time of a product in blocks of so many sums, relative to four of them; measured, about.
COST = {1: 1.25, 2: 1.05, 3: 1.05, 4: 1.0}
MANY_ROWS = 512  # rows, above which what is left over goes row by row. Reasoned: it is seldom
# Weights of a step that are more than so many times L2 are asked for ahead, with 16 registers. At 2 MB
# of weights and 512 KB of L2 it lost 4 %, at 8 MB it gained 8 (measured).
PREFETCH_L2 = 4
PREFETCH_TILES = 4  # tiles that share the asking, each a piece of the next block's weights; figure not kept

# -- where the work goes

# Rows from which a longer loop over k beats reading rows that were multiplied before the loop. Measured: 16.7 and
# 14.7 ms at (T,B,H) = (1000,4,200), before from 16 rows on; 9.0 and 8.0 at (100,4,512).
FOLD_ROWS = 3
# Bytes of rows that were multiplied before the loop, from which they are multiplied in its steps at any number of rows.
# Reasoned: a long sequence shall take its inputs and results, and little besides.
HOISTED_BYTES = 2**26
MIN_PANEL = 4  # rows of a panel, at least; figure not kept
TENSORS = 24  # of a loop that makes products itself, about. Reasoned: each brings two, a dispatch takes 32

# -- lanes that are rows (row_lanes.py)

LANE_BYTES = 16 << 10  # of a vector's rows, on the stack. Reasoned: half of the first level of caches
# How many times fewer operations vectors of rows take, at least. Measured: docs/kernels.md; all bodies that were chosen
# so gained 1.1 or more, of those that were not some gained, some took 1.4 times as long.
LANE_GAIN = 2
# Operations that an element takes for each lane, where rows do not lie side by side. Reasoned: with AVX2 and more the
# processor gathers, else each lane is a load and a branch.
GATHERED, ONE_BY_ONE = 0.5, 3
COSTLY_OPS = 8  # operations of a quotient, a root or an exponential, about. Reasoned: by their formulas

# -- sharing a step

# Multiplications and additions of a step: a second member comes from twice PAIR_FLOPS on (at
# 1000,1,128 2.2 ms, 3.2 alone), further ones for each SHARE_FLOPS. Two members were measured, more
# are expected to wait longer for each other.
PAIR_FLOPS, SHARE_FLOPS = 16_000, 100_000
# Lines of a cache that the numbers of a chunk's rows fill at least, where a step is short. Measured: a Kalman filter of
# 4 states, 200 steps, two workers beside one: 1.04 and 0.53 ms with 16 rows, 1.9 and 1.3 with 32, 3.0 and 3.2 with 64,
# 4.5 and 6.4 with 128.
NUMBER_LINES = 4
# Fewer blocks of columns than this, if odd in number, may leave a member with notably more than
# another: halves of their rows are shared out. Measured: 14.5 instead of 15.2 ms at 1000,4,200.
UNEVEN = 32
COLUMNS = 32  # rows up to which members of a product share its columns. Reasoned: each reads a part of the matrix
POLLS = 128  # looks at the count before a member tries to take shares of others; figure not kept
# Workgroups that a worker of IREE 3.13 takes at a time, where there are as many for each (its `task.c`). Measured: of
# 25 one of two workers took 16, 8.0 ms in place of 6.8.
RESERVED = 8
SHARES = 4  # workgroups per worker of a kernel whose parts wait for nothing. Reasoned: a late worker takes fewer

# -- loops by columns

# Tensors with a row for each step up to which columns are outermost: each step is other pages of each. Measured, two
# cores with AVX-512, time without by with, ten linear and spiking cells, up to 8 tensors: 0.97 to 1.33 with one row of
# 128 columns, 0.91 to 1.28 with eight, 0.96 to 1.13 with 32 of 256; a selective scan of 16 numbers for each column 1.4
# to 1.5, WKV 1.1 to 2.5. 12 tensors 0.82 to 0.94, and 1.04 to 1.21 with one row; 19 tensors 0.91 to 1.09.
COLUMN_TENSORS = 8
COLUMN_STEPS = 64  # steps of a block of columns at a time. Reasoned: so many pages of each tensor
# Of a block, the first that fits. Measured with AVX2, five cells at (200,8,128): a line of the cache, two vectors, in
# place of half a line took 0.91 of the time in inference, 0.94 in training steps.
COLUMN_VECTORS = (4, 2, 1)
COLUMN_OPS = 16  # of a block in a step, for more than one vector; figure not kept

# Rows of a chunk, at most, that a step puts in order. Reasoned: their numbers are 2 KiB on the stack.
ORDERED = 512
ORDERED_FROM = 5  # rows of a batch from which it does. Measured: of five rows the order gains 1.17 (docs/kernels.md)

# -- products and sums of outer products

WORTH = 1 << 21  # multiplications from which a kernel is worth its compile time; figure not kept
FEW_ROWS = 16  # rows from which IREE's own product is slower on one thread; figure not kept
# Elements of a matrix, below which IREE's own product does as well. Measured on a Zen 5, its time by the kernel's: from
# 4,096 on 0.99 to 1.27 with 64 rows, 1.66 to 2.21 with 640; of 1,024 and 2,048 0.95 to 1.08 and 1.08 to 1.53.
SMALL_MATRIX = 1 << 12
SHARED_MATRIX = 1 << 19  # elements of a matrix from which members that read a part each are faster; figure not kept
# Elements of rows of a table, from which a kernel copies them. Measured on a Zen 5, the time of IREE's own by the
# kernel's: from 4,096 on 1.13 to 4.0, below 0.97 to 1.12.
PICKED = 1 << 12
TRANSPOSED = 8  # columns of an operand from which the other one is transposed for such a sum; reasoned
SMALL_SUM = 1 << 12  # elements of a sum of outer products, below which IREE's own does as well; figure not kept
SUMMED_COLUMNS = 16  # of rows that a kernel adds up, at least. Reasoned: a vector of f32 has as many
# Of all rows, from which it does. Measured on a Zen 5, the time of IREE's own by the kernel's: 8,192 with numbers 0.93,
# from 12,800 on 1.01 to 4.8, with named sizes 1.2 to 13.
SUMMED_ELEMENTS = 12_800
SUMMED_VECTORS = 8  # of each row at a time. Reasoned: half of the registers of AVX2, and lines that follow each other
SUMMED_ROWS = 128  # of a sum that is added to those before it. Reasoned: an error of some 128 roundings
SUM = 256  # terms of one block of a sum of outer products, at most. Reasoned: its columns stay in L2
PANEL = 24 << 10  # bytes of a panel of the second operand, on the stack. Reasoned: it stays in L1
WIDE, NARROW = (3, 2)  # vectors of a tile's columns. Reasoned: a tile of one would load as often as it multiplies
TERMS = 4  # terms of an iteration; packed operands end with zeros; figure not kept
PACKED_NUMBERS = 24  # of a packing kernel's call, at most, beside the tensors; more is left to IREE; figure not kept

# -- elementwise work on tensors of several shapes

PARTIAL_SUMS = 64  # of all elements of a tensor. Reasoned: few, as their sum is one thread's; enough for all workers
UNIT_VECTORS = 64  # vectors that a workgroup has, at least. Reasoned: a few KiB of each tensor

# -- batched products

BATCH_AXES = 3  # of a kernel's call, at most. Reasoned: each brings three numbers, a dispatch takes some thirty
BATCH_ROWS = 64  # rows of a batch that a workgroup has at a time. Reasoned: a panel is put on the stack for each
BATCH_COLUMNS = 4  # columns, below which products are IREE's. Reasoned: a vector would be nearly empty
# Heights of tiles by vectors of columns, which are in registers with a panel's vectors of one term. Reasoned: sixteen
# sums hide the latency of one, and twelve are what sixteen registers hold.
_BATCH_TILES: Mapping[int, Mapping[int, tuple[int, ...]]] = {
    32: {4: (4, 2, 1), 2: (8, 4, 1), 1: (8, 4, 1)},
    16: {2: (6, 4, 2, 1), 1: (8, 4, 1)},
}

# -- stencils

SUMS = 3  # vectors of places of the tallest tile. Reasoned: as of a sum of outer products; lower ones have more
VECTORS = 8  # at most. Reasoned: enough sums for the latency of one
CHANNEL_BYTES = 128 << 10  # of a block's channels. Reasoned: they stay in L2 while tiles of outputs pass over them
FILLED = 0.6  # of the lanes of vectors, from which outputs are vectors. Reasoned: places fill them better below
BLOCK_SUMS = 12 << 10  # bytes of the sums of a block of places, on the stack. Reasoned: they stay in L1
STENCIL_PANEL = 12 << 10  # bytes of what a block sees. Reasoned: as much again
CHUNK_TERMS = 96  # terms of a panel, about: so many weights of a tile stay in L1. Measured: 48 to 400 did as well
ROW_PLACES = 256  # of a block of few outputs, about. Reasoned: a few tiles, and several blocks of a long row
# Time of a product in a tile of so many vectors of outputs, relative to four. Reasoned: by loads for each product
OUTPUT_COST = {1: 1.3, 2: 1.08, 3: 1.02, 4: 1.0, 5: 1.0, 6: 1.02, 7: 1.06}
TURNED = 16 << 10  # bytes of the cotangent of a block, turned, in a gradient by taps. Reasoned: half of the stack
TAP_ROWS = 48  # taps of channels of a panel, about. Reasoned
FEWEST_PLACES = 24  # of a block of a gradient by taps: between blocks sums are in memory. Reasoned
PLACES = 1024  # of a block, at most. Reasoned: few channels still give several workgroups work


def batch_tiles(target: TargetInfo) -> Mapping[int, tuple[int, ...]]:
    """Rows of a batched product's tiles, by its vectors of columns, most first."""
    return _BATCH_TILES[machine(target).registers]


def tile_of_places(target: TargetInfo, outputs: int) -> tuple[int, int]:
    """Outputs of a stencil's tile whose vectors are places, and vectors, at most."""
    tallest = machine(target).outer
    rows = min(outputs, tallest)
    return rows, min(SUMS * tallest // rows, VECTORS)

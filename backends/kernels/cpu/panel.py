"""The places that a block of a stencil's results sees, copied onto the stack, some channels at a time.

A block is some results of one row, or whole rows. Its panel has, for every channel, the rows that the taps see one
behind the other, with zeros where lhs ends: so no tap looks whether its place exists, and each reads at one distance
from where the result's first tap reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstm_ir.backends.kernels.text.memory import Memory, load_vector, on_stack, store_vector
from lstm_ir.backends.kernels.text.statements import Name, TextOperand, argument
from lstm_ir.backends.kernels.text.text import Text
from lstm_ir.ir.dims import Dim
from lstm_ir.ops.primitive.stencil import Taps

Array = np.ndarray[Any, Any]

# Numbers of a kernel: sizes of lhs and of the results, the strides, the padding before lhs.
HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH = (argument(w) for w in ("height", "width", "out_height", "out_width"))
DOWN, RIGHT, ABOVE, BEFORE = (argument(w) for w in ("down", "right", "above", "before"))
# Of a panel: the farthest row and column of a tap, elements of a row, of a channel.
REACH_ROW, REACH_COLUMN, PITCH, PLANE = (argument(w) for w in ("reach_row", "reach_column", "pitch", "plane"))
ROWS, COLUMNS = argument("block_rows"), argument("block_columns")  # of a block, at most
LINES, ELEMENTS = argument("lines"), argument("elements")  # of lhs
NUMBERS = (
    HEIGHT, WIDTH, OUT_HEIGHT, OUT_WIDTH, DOWN, RIGHT, ABOVE, BEFORE, REACH_ROW, REACH_COLUMN, PITCH, PLANE, ROWS,
    COLUMNS,
)  # fmt: skip


@dataclass(frozen=True)
class PanelForm:
    """Sizes of a panel: a block's rows and columns of results, and the taps."""

    rows: int
    columns: int
    taps: Taps

    @classmethod
    def of(
        cls, taps: Taps, sizes: tuple[Dim, Dim], places: int, room: int, *, one_row: bool = False
    ) -> PanelForm | None:
        """For blocks of about so many places, of whose planes one has `room`; None where none has.

        Whole rows where their length is known and small, else parts of one; of `one_row` always.
        """
        height, width = sizes
        while places > 0:
            if isinstance(width, int) and width <= places and not one_row:
                form = cls(_even(height, max(1, places // max(width, 1))), max(width, 1), taps)
            else:
                form = cls(1, _even(width, places), taps)
            if form.plane <= room:
                return form
            places //= 2
        return None

    @property
    def pitch(self) -> int:
        """Elements of a row."""
        return (self.columns - 1) * self.taps.strides[1] + self.taps.reach[1] + 1

    @property
    def plane(self) -> int:
        """Elements of a channel."""
        return ((self.rows - 1) * self.taps.strides[0] + self.taps.reach[0] + 1) * self.pitch

    @property
    def places(self) -> int:
        """Results of a block."""
        return self.rows * self.columns

    def distances(self) -> list[int]:
        """Of each tap, from where the first row and column are read, in the plane of a channel."""
        return [i * self.pitch + j for i, j in zip(self.taps.rows, self.taps.columns, strict=True)]

    def table(self, channels: int, parts: Sequence[range] | None = None) -> Array:
        """Those of each channel and tap; of some parts of the taps, part by part."""
        at, every = np.asarray(self.distances()), [range(len(self.taps))] if parts is None else parts
        found = [(np.arange(channels)[:, None] * self.plane + at[part]).ravel() for part in map(list, every)]
        return np.concatenate(found).astype(np.int32)

    @property
    def direct(self) -> bool:
        """Whether one tap reads lhs as it is, and nothing behind it."""
        return len(self.taps) == 1 and (*self.taps.reach, *self.taps.low) == (0, 0, 0, 0) and max(self.taps.high) <= 0

    def numbers(self, lhs: tuple[Dim, Dim], sizes: tuple[Dim, Dim]) -> list[Dim]:
        """Those that NUMBERS name."""
        taps = self.taps
        return [
            *lhs, *sizes, *taps.strides, *taps.low, *taps.reach, self.pitch, self.plane, self.rows, self.columns,
        ]  # fmt: skip


def _even(size: Dim, most: int) -> int:
    """Parts that are about equal, of at most so many."""
    if not isinstance(size, int):
        return most
    parts = max(1, -(-size // most))
    return max(1, -(-size // parts))


def put_known(t: Text, numbers: Mapping[Name, Dim]) -> None:
    """Those that are constants, under their names."""
    for name, d in numbers.items():
        if isinstance(d, int):
            t.binary("addi", t.index(d), t.index(0), to=name)


@dataclass(frozen=True)
class ResultBlock:
    """A block of results: where it begins, how many rows and columns it has."""

    row: TextOperand
    column: TextOperand
    rows: TextOperand
    columns: TextOperand


def blocks(t: Text) -> tuple[TextOperand, TextOperand]:
    """How many, one under the other and side by side."""
    return t.binary("ceildivui", OUT_HEIGHT, ROWS), t.binary("ceildivui", OUT_WIDTH, COLUMNS)


def block(t: Text, number: TextOperand, across: TextOperand) -> ResultBlock:
    """The block of this number, of which so many are side by side."""
    row = t.binary("muli", t.binary("divui", number, across), ROWS)
    column = t.binary("muli", t.binary("remui", number, across), COLUMNS)
    rows = t.binary("minui", t.binary("subi", OUT_HEIGHT, row), ROWS)
    columns = t.binary("minui", t.binary("subi", OUT_WIDTH, column), COLUMNS)
    return ResultBlock(row, column, rows, columns)


@dataclass(frozen=True)
class Seen:
    """What taps see: a panel, or x itself where one tap sees no zeros around it."""

    t: Text
    x: Memory  # [LINES, WIDTH]
    memory: Memory  # that is read
    table: Memory | None  # of each channel of a panel and tap, the distance from a place; None for x itself

    @classmethod
    def of(cls, t: Text, element: str, form: PanelForm, held: int) -> Seen:
        """For panels of so many channels."""
        x = Memory("%m_x", element, (LINES, WIDTH))
        if form.direct:
            return cls(t, x, Memory("%m_seen", element, (ELEMENTS,)), None)
        panel = on_stack(t, element, (held * form.plane + t.lanes,))
        return cls(t, x, panel, Memory("%m_table", "i32", (argument("table"),)))

    def put(self, lines: TextOperand, terms: TextOperand, bindings: Iterator[Name]) -> None:
        """The memories; lines: rows of all channels of lhs; terms: of a panel."""
        t, zero = self.t, self.t.index(0)
        t.binary("addi", lines, zero, to=LINES)
        binding = next(bindings)
        t.put(self.x.subspan(binding, zero))
        if self.table is None:
            t.binary("muli", LINES, WIDTH, to=ELEMENTS)
            t.put(self.memory.subspan(binding, zero))
        else:
            t.binary("addi", terms, zero, to=argument("table"))
            t.put(self.table.subspan(next(bindings), zero))

    def fill(self, line: TextOperand, channels: TextOperand, b: ResultBlock) -> TextOperand:
        """Where the first place of a block is read in the first of these channels, whose first row is a line of x."""
        t = self.t
        if self.table is not None:
            copy(t, self.x, line, channels, b, self.memory)
            return t.index(0)
        row = t.binary("addi", line, t.binary("muli", b.row, DOWN))
        return t.binary("addi", t.binary("muli", row, WIDTH), t.binary("muli", b.column, RIGHT))

    def down(self, row: TextOperand) -> TextOperand:
        """From the first row of a block to this one."""
        t = self.t
        return t.binary("muli", t.binary("muli", row, DOWN), WIDTH if self.table is None else PITCH)

    def right(self, column: TextOperand) -> TextOperand:
        """From the first column to this one."""
        return self.t.binary("muli", column, RIGHT)

    def term(self, k: TextOperand) -> TextOperand:
        """From where a place's first channel is read to a channel and tap."""
        t = self.t
        if self.table is None:
            return t.binary("muli", k, t.binary("muli", HEIGHT, WIDTH))
        return t.op("arith.index_cast {} : i32 to index", self.table.load(t, [k]))


def copy(t: Text, x: Memory, line: TextOperand, channels: TextOperand, b: ResultBlock, panel: Memory) -> None:
    """The panel of a block; line: the first row of the first of these channels in x [lines, WIDTH].

    What is stored behind a row is overwritten by the next one; the last one needs a vector's room.
    """
    one = t.index(1)
    high = t.binary("addi", t.binary("muli", t.binary("subi", b.rows, one), DOWN), t.binary("addi", REACH_ROW, one))
    wide = t.binary("muli", t.binary("subi", b.columns, one), RIGHT)
    wide = t.binary("addi", wide, t.binary("addi", REACH_COLUMN, one))
    top = t.binary("subi", t.binary("muli", b.row, DOWN), ABOVE)
    first = t.binary("subi", t.binary("muli", b.column, RIGHT), BEFORE)
    none = t.index(0)
    left = t.binary("minsi", t.binary("maxsi", t.binary("subi", none, first), none), wide)
    zero = t.constant("0.0", t.vector(x.element))
    lanes = t.index(t.lanes)
    # Whole vectors of x, where it has them behind the first place; what is more than the block sees is not read.
    room = t.binary("maxsi", t.binary("subi", t.binary("subi", WIDTH, first), left), none)
    fit = t.binary("muli", t.binary("divui", room, lanes), lanes)
    needed = t.binary("muli", t.binary("ceildivui", t.binary("subi", wide, left), lanes), lanes)
    full = t.binary("addi", left, t.binary("minui", fit, needed))
    with t.loop(none, channels, one) as channel:
        lines = t.binary("addi", line, t.binary("muli", channel, HEIGHT))
        there = t.binary("muli", channel, PLANE)
        with t.loop(none, high, one) as i:
            row = t.binary("addi", top, i)
            exists = t.compare("ult", row, HEIGHT)
            to = t.binary("addi", there, t.binary("muli", i, PITCH))
            empty, vectors = t.select(exists, left, wide), t.select(exists, full, wide)
            with t.loop(none, empty, lanes) as j:
                store_vector(t, zero, panel, [t.binary("addi", to, j)])
            source = t.binary("addi", lines, row)
            with t.loop(empty, vectors, lanes) as j:
                v = load_vector(t, x, [source, t.binary("addi", first, j)])
                store_vector(t, v, panel, [t.binary("addi", to, j)])
            with t.loop(vectors, wide, lanes) as j:
                column = t.binary("addi", first, j)
                rest = t.binary("maxsi", t.binary("subi", WIDTH, column), none)
                v = load_vector(t, x, [source, column], t.mask(rest))
                store_vector(t, v, panel, [t.binary("addi", to, j)])

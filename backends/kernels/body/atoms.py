"""Atoms: one element of a result as a small expression of loads, products, elementwise ops."""

from __future__ import annotations

from dataclasses import dataclass

from lstm_ir.backends.kernels.body.access import ROW, Access, ColumnAxis, LoopAxis
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.types import DType

WHOLE = ("dot", "reduce", "fold", "over_rows", "turns")
"""Ops that read whole rows, rows of many leading indices, or all rows: more than what is at their place."""


@dataclass(frozen=True, slots=True)
class MemorySource:
    """Memory that a kernel reads: a carry, a scanned row, a loop-invariant value, or scratch."""

    kind: str  # carry, scan, value, temp, stack; projection: rows made before the loop
    index: int  # of the carry or operand; of the scratch row
    value: Value | None = None  # the invariant value


@dataclass(frozen=True, eq=False)
class Atom:
    """One expression; equal ones are one object. `rows`, `cols`: whether it differs along them."""

    op: str  # load, splat, step, dot, reduce, fold, over_rows, pick, carried, turns, or an elementwise op's name
    dtype: DType
    args: tuple[Atom, ...] = ()
    rows: bool = False
    cols: bool = False
    phase: int = 0  # of the sweep that can compute it
    node: Node | None = None
    source: MemorySource | None = None  # load
    access: Access = ()  # load, pick; of a fold, or over rows: its loop
    number: float = 0  # splat
    terms: tuple[ProductTerm, ...] = ()  # dot
    width: int = 0  # reduce: number of columns
    kind: str = ""  # reduce, fold, over_rows: reduce_sum, ...
    has_dot: bool = False  # or a fold, also over rows: it costs more than to keep it
    loops: tuple[LoopAxis, ...] = ()  # loops inside of the kernel that stand around it
    inner: InnerLoop | None = None  # turns: what runs; `width` says which of its results

    @property
    def column(self) -> int:
        """A load's first column."""
        return next((at.start for at in self.access if isinstance(at, ColumnAxis)), 0)

    @property
    def in_turns(self) -> bool:
        """Whether it differs between the turns of an inner loop: these have levels below 0."""
        return any(at.level < 0 for at in self.loops)


@dataclass(eq=False)
class InnerLoop:
    """A loop of numbers of a row: what its carries start with, what they are in a turn, and what follows."""

    turns: LoopAxis
    starts: tuple[Atom, ...]
    carried: tuple[Atom, ...]
    nexts: tuple[Atom, ...]
    number: Atom  # of the turn
    results: tuple[Atom, ...] = ()


@dataclass(frozen=True, slots=True)
class Matrix:
    """A product's matrix: an invariant value, its leading indices and its two axes."""

    value: Value
    fixed: tuple[int | None, ...]  # one per axis; None at the two axes of the matrix
    k_axis: int
    col_axis: int
    k_start: int
    col_start: int


@dataclass(frozen=True, slots=True)
class ProductTerm:
    """sum over k < length of row[k] * matrix[k, column], or 0 where `mask` is false."""

    row: Atom
    length: int
    matrix: Matrix
    mask: Atom | None
    offset: int = 0  # of int8: elements of the row are kept so much larger


@dataclass(eq=False)
class Temp:
    """A computed row in scratch memory: `atom` over `width` columns, for each index of `loops`.

    Of width 0 it is a number for each index, and those of the innermost loop are the columns of the memory.
    common: one for all rows.
    """

    index: int
    atom: Atom
    width: int
    loops: tuple[LoopAxis, ...] = ()
    common: bool = False

    @property
    def access(self) -> Access:
        """Where its element at a place is."""
        row = () if self.common else (ROW,)
        if self.width:
            return (*self.loops, *row, ColumnAxis(0))
        return (*self.loops[:-1], *row, *self.loops[-1:])

"""The order in which a step takes the rows of a chunk: those whose products it needs come first.

Tiles of products end behind them. A batch whose lengths differ so takes the time of the rows that have not ended, as
packed sequences do, and no row has to be moved: what reads and writes a row goes by its number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lstm_ir.backends.kernels.body.active_rows import Condition
from lstm_ir.backends.kernels.cpu.machine import ORDERED
from lstm_ir.backends.kernels.cpu.team import RowRange
from lstm_ir.backends.kernels.text.evaluate import Evaluator
from lstm_ir.backends.kernels.text.memory import ElementPlace, Memory, on_stack
from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.text import Text
from lstm_ir.ir.dims import Dim


@dataclass(frozen=True)
class RowOrder:
    """Rows by their places; those of the first ORDERED places of a chunk are in order, the others where they were."""

    t: Text
    table: Memory
    low: TextOperand
    active: TextOperand  # the place behind the last row that needs products
    end: TextOperand  # and behind the last one that is in order
    all: bool  # whether no chunk has more

    @classmethod
    def of_step(cls, t: Text, e: Evaluator, condition: Condition, rows: RowRange, count: Dim) -> RowOrder:
        """Puts the rows of a chunk of `count` rows or fewer in order: others stand behind those that are needed."""
        whole = isinstance(count, int) and count <= ORDERED
        end = rows.high if whole else t.binary("minui", rows.high, t.add(rows.low, ORDERED))
        table = on_stack(t, "i32", (min(count, ORDERED) if isinstance(count, int) else ORDERED,))
        last = t.binary("subi", end, t.index(1))
        row, (front,), out = t.carried(rows.low, end, t.index(1), [rows.low], ["index"])
        needed = e.value(condition.atom, ElementPlace(row, None), False, None, {})
        if not condition.holds:
            needed = t.opposite(needed)
        behind = t.binary("subi", last, t.binary("subi", row, front))  # as many as came before
        place = t.binary("subi", t.select(needed, front, behind), rows.low)
        table.store(t, t.op("arith.index_cast {} : index to i32", row), [place])
        t.close([t.select(needed, t.add(front, 1), front)], ["index"])
        return cls(t, table, rows.low, out[0], end, whole)

    def row(self, place: TextOperand) -> TextOperand:
        """The row at a place."""
        t, at = self.t, self.t.binary("subi", place, self.low)
        if not self.all:
            at = t.binary("minui", at, t.index(ORDERED - 1))
        row = t.op("arith.index_cast {} : i32 to index", self.table.load(t, [at]))
        return row if self.all else t.select(t.compare("ult", place, self.end), row, place)

    def count(self, first: TextOperand, here: TextOperand, heights: Sequence[int]) -> TextOperand:
        """Of `here` rows from a place on, how many tiles of these heights, tallest first, have to compute.

        A tile that has a row too many takes as long as it would without: it reads all weights either way.
        """
        t, zero, tallest = self.t, self.t.index(0), self.t.index(heights[0])
        left = t.binary("minsi", t.binary("maxsi", t.binary("subi", self.active, first), zero), here)
        whole = t.binary("muli", t.binary("divui", left, tallest), tallest)
        rest = t.binary("subi", left, whole)
        found: TextOperand = tallest
        for height in heights[1:]:
            found = t.select(t.compare("ule", rest, t.index(height)), t.index(height), found)
        found = t.select(t.compare("eq", rest, zero), zero, found)
        count = t.binary("minui", t.binary("addi", whole, found), here)
        if self.all:
            return count
        return t.select(t.compare("ugt", t.binary("addi", first, here), self.end), here, count)

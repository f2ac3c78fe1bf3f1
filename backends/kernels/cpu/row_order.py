"""The order in which a step takes the rows of a chunk: those whose products it needs come first.

Tiles of products end behind them. A batch whose lengths differ so takes the time of the rows that have not ended, as
packed sequences do, and no row has to be moved: what reads and writes a row goes by its number.
"""

from __future__ import annotations

from dataclasses import dataclass

from lstm_ir.backends.kernels.body.active_rows import ActiveRows
from lstm_ir.backends.kernels.cpu.team import RowRange
from lstm_ir.backends.kernels.text.evaluate import Evaluator
from lstm_ir.backends.kernels.text.memory import ElementPlace, Memory
from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.text import Text


@dataclass(frozen=True)
class RowOrder:
    """Rows by their places, and the place behind the last one that needs products."""

    t: Text
    table: Memory  # [members, rows]
    member: TextOperand
    end: TextOperand

    @classmethod
    def of_step(
        cls, t: Text, e: Evaluator, active: ActiveRows, table: Memory, member: TextOperand, rows: RowRange
    ) -> RowOrder:  # fmt: skip
        """Puts the rows of a chunk in order: others follow from its end on."""
        last = t.binary("subi", rows.high, t.index(1))
        row, (front,), out = t.carried(rows.low, rows.high, t.index(1), [rows.low], ["index"])
        needed = e.value(active.condition.atom, ElementPlace(row, None), False, None, {})
        if not active.condition.holds:
            needed = t.opposite(needed)
        behind = t.binary("subi", last, t.binary("subi", row, front))  # as many as came before
        table.store(t, t.op("arith.index_cast {} : index to i32", row), [member, t.select(needed, front, behind)])
        t.close([t.select(needed, t.add(front, 1), front)], ["index"])
        return cls(t, table, member, out[0])

    def row(self, place: TextOperand) -> TextOperand:
        """The row at a place."""
        return self.t.op("arith.index_cast {} : i32 to index", self.table.load(self.t, [self.member, place]))

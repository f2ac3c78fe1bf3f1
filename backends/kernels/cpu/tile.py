"""One block of columns over some rows: sums of products, then the epilogue per row."""

from __future__ import annotations

from dataclasses import dataclass

from lstm_ir.backends.kernels.body.atoms import Atom
from lstm_ir.backends.kernels.body.plan import Sweep
from lstm_ir.backends.kernels.cpu.row_order import RowOrder
from lstm_ir.backends.kernels.cpu.sums import Sums, Tile
from lstm_ir.backends.kernels.cpu.team import Turn, Work
from lstm_ir.backends.kernels.text.evaluate import Evaluator, order
from lstm_ir.backends.kernels.text.memory import ElementPlace, load_vector
from lstm_ir.backends.kernels.text.nests import write_roots
from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.text import Text

FETCHED = ("scan", "projection")  # new rows in every step: they are in no cache of this core


def work_of(sweep: Sweep, tile: Tile, lanes: int) -> Work:
    """What a team shares out of a sweep."""
    return Work(tile.blocks(sweep.width, lanes), tile.parts)


@dataclass
class Block:
    """Writes one sweep; without products there are no `sums`."""

    t: Text
    e: Evaluator
    sweep: Sweep
    tile: Tile
    sums: Sums | None
    order: RowOrder | None = None

    def _row(self, place: TextOperand) -> TextOperand:
        return place if self.order is None else self.order.row(place)

    def write(self, turn: Turn) -> None:
        """What a member computes of one block."""
        t, (block, following, (low, high)) = self.t, turn
        if self.sums is None:
            with t.loop(low, high, t.index(1)) as row:
                self._epilogue(block, row, None)
            return
        most = t.index(self.tile.group)
        with t.loop(low, high, most) as first:
            left = t.binary("subi", high, first)
            here = t.binary("minsi", left, most)
            self._fetch(block, first, here)
            self.sums.write(block, following, first, here)
            with t.loop(t.index(0), here, t.index(1)) as r:
                self._epilogue(block, self._row(t.binary("addi", first, r)), r)

    def _fetch(self, block: TextOperand, first: TextOperand, count: TextOperand) -> None:
        """Ask for what the epilogue will read, while sums are made."""
        t = self.t
        loads = [
            a
            for a in dict.fromkeys(a for r in self.sweep.roots for a in order(r.atom))
            if a.op == "load" and a.cols and not a.loops and a.source is not None and a.source.kind in FETCHED
        ]
        if not loads:
            return
        first_col = t.binary("muli", block, t.index(t.lanes * self.tile.q))
        ends = (0, t.lanes - 1) if self.sweep.width % t.lanes else (0,)  # a vector over two lines
        with t.loop(t.index(0), count, t.index(1)) as r:
            row = self._row(t.binary("addi", first, r))
            for v in range(self.tile.q):
                for lane in ends:
                    place = ElementPlace(row, t.add(first_col, v * t.lanes + lane))
                    for a in loads:
                        self.e.fetch(a, place)

    def _epilogue(self, block: TextOperand, row: TextOperand, slot: TextOperand | None) -> None:
        """All results of one row in this block."""
        t = self.t
        if self.sweep.width == 0:
            write_roots(self.e, self.sweep.roots, ElementPlace(row, None), False, None, {})
            return
        if self.tile.q == 1:
            self._vector(block, t.binary("muli", block, t.index(t.lanes)), row, slot, t.index(0))
            return
        first = t.binary("muli", block, t.index(t.lanes * self.tile.q))
        with t.loop(t.index(0), t.index(self.tile.q), t.index(1)) as v:
            col = t.binary("addi", first, t.binary("muli", v, t.index(t.lanes)))
            self._vector(block, col, row, slot, t.binary("muli", v, t.index(len(self.sweep.dots))))

    def _vector(
        self, block: TextOperand, col: TextOperand, row: TextOperand, slot: TextOperand | None, first_sum: TextOperand
    ) -> None:
        t, width = self.t, self.sweep.width
        mask = None
        if width % (t.lanes * self.tile.q):
            left = t.binary("maxsi", t.binary("subi", t.index(width), col), t.index(0))
            mask = t.mask(left)
        place = ElementPlace(row, col, mask)

        def sums(a: Atom) -> TextOperand:
            assert self.sums is not None
            assert slot is not None
            at = [slot, t.add(first_sum, self.sweep.dots.index(a)), t.index(0)]
            return load_vector(t, self.sums.buffer, at)

        write_roots(self.e, self.sweep.roots, place, True, sums, {})

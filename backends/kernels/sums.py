"""Products of one block of columns with some rows, register-blocked; their sums go to a buffer.

A tile keeps the sums of some rows and vectors in registers over all k. The vectors of a block are
summed a few at a time where registers are few: taller tiles read each weight less often. Where the
weights of a step come from L3, every tile asks for a part of the next block's: else the first tile
of a block would wait for them, and the others would leave L3 idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from lstm_ir.backends.kernels.atoms import Atom
from lstm_ir.backends.kernels.evaluate import Evaluator, row_element
from lstm_ir.backends.kernels.memory import ELEMENT_BYTES, Memory, Place, load_vector, store_vector
from lstm_ir.backends.kernels.packing import Packed
from lstm_ir.backends.kernels.plan import Sweep
from lstm_ir.backends.kernels.text import Text, scalar_type
from lstm_ir.types import DType

LINE = 64  # bytes of a cache line
Key = tuple[int, int, int]  # row of a tile, vector of columns, gate


@dataclass(frozen=True)
class Shape:
    """A register tile: rows, and the vectors of a block that are summed at a time."""

    rows: int
    vectors: int


@dataclass(frozen=True)
class Tile:
    """Blocking of a sweep: `q` vectors of columns; tiles of rows, tallest first, down to one row."""

    q: int
    shapes: tuple[Shape, ...] = (Shape(1, 1),)
    group: int = 1  # rows whose sums the buffer holds
    chunk: int = 1  # rows that a team has at least, where there are several
    ahead: bool = False  # whether the next block's weights are asked for
    unroll: int = 16  # products per iteration, about

    @property
    def tallest(self) -> int:
        """Rows of the tallest tile."""
        return self.shapes[0].rows


class Ahead(NamedTuple):
    """The block that comes next, and which of so many loops over k asks for its part of it."""

    block: str
    turn: str
    turns: int


@dataclass
class Sums:
    """Writes the products of a sweep: `packed` are the weights of each pass."""

    t: Text
    e: Evaluator
    sweep: Sweep
    tile: Tile
    packed: Mapping[int, Packed]  # by number of the pass
    buffer: Memory

    def write(self, block: str, following: str, first: str, here: str) -> None:
        """Sums of `here` rows from `first`, at most a group; the block `following` comes next."""
        t = self.t
        at = t.index(0)
        for shape in self.tile.shapes:
            n = t.index(shape.rows)
            fit = t.binary("muli", t.binary("divui", t.binary("subi", here, at), n), n)
            end = t.binary("addi", at, fit)
            with t.loop(at, end, n) as r:
                self._tile(block, following, t.binary("addi", first, r), r, shape)
            at = end

    def _tile(self, block: str, following: str, row: str, slot: str, shape: Shape) -> None:
        """Sums of some rows from `row`, in the buffer from `slot` on."""
        t, width = self.t, len(self.sweep.dots)
        rows = [t.add(row, r) for r in range(shape.rows)]
        vectors = [(v, g) for v in range(self.tile.q) for g in range(width)]
        parts = [vectors[i : i + shape.vectors] for i in range(0, len(vectors), shape.vectors)]
        tile = t.binary("divui", slot, t.index(shape.rows)) if self.tile.ahead else ""
        for number, part in enumerate(parts):
            ahead = None
            if self.tile.ahead:
                turn = t.add(t.binary("muli", tile, t.index(len(parts))), number)
                ahead = Ahead(following, turn, len(parts) * -(-self.tile.group // shape.rows))
            acc: dict[Key, str] = {}
            for n in range(len(self.sweep.loops)):
                self._pass(n, block, rows, part, acc, ahead)
            for (r, v, g), value in acc.items():
                at = [t.add(slot, r), t.index(v * width + g), t.index(0)]
                store_vector(t, value, self.buffer, at)

    def _pass(
        self, number: int, block: str, rows: list[str], part: list[tuple[int, int]],
        acc: dict[Key, str], ahead: Ahead | None,
    ) -> None:  # fmt: skip
        """Adds the products of one row of operands: those of the vectors in `part` that it has."""
        t, packed, loop = self.t, self.packed[number], self.sweep.loops[number]
        at_gate = {g: i for i, (g, _) in enumerate(loop.gates)}
        lanes = {
            (v, g): (v * len(loop.gates) + at_gate[g]) * t.lanes for v, g in part if g in at_gate
        }
        if not lanes:
            return
        dtype = self.sweep.dots[loop.gates[0][0]].dtype
        kind = t.vector(scalar_type(dtype))
        zero = t.number(0.0, dtype, True)
        keys = [(r, *k) for r in range(len(rows)) for k in lanes]
        unroll = self._unroll(len(keys), loop.length)
        init, kinds = [acc.get(k, zero) for k in keys], [kind] * len(keys)
        first, inside, out = t.carried(
            t.index(0), t.index(loop.length), t.index(unroll), init, kinds
        )
        if ahead is not None:
            self._fetch(packed, ahead, first, loop.length, unroll)
        current = dict(zip(keys, inside, strict=True))
        for u in range(unroll):
            k = t.add(first, u)
            there = block, t.add(first, packed.first + u)
            weights = {
                key: self._weight(packed.memory, there, n, dtype) for key, n in lanes.items()
            }
            for r, row in enumerate(rows):
                x = self._wider(row_element(self.e, loop.row, row, k), loop.row.dtype, dtype)
                xs = t.op(f"vector.broadcast {x} : {scalar_type(dtype)} to {kind}")
                for key, w in weights.items():
                    old = current[r, *key]
                    current[r, *key] = t.op(f"vector.fma {xs}, {w}, {old} : {kind}")
        t.close([current[k] for k in keys], kinds)
        acc.update({k: f"{out}#{i}" for i, k in enumerate(keys)})
        if loop.mask is not None:
            for r, row in enumerate(rows):
                self._clear(loop.mask, row, [k for k in keys if k[0] == r], acc, zero, kind)

    def _fetch(self, packed: Packed, ahead: Ahead, k: str, length: int, unroll: int) -> None:
        """Asks for this iteration's part of the following block. Past the last block, and where
        loops are more than was thought, it is weights of no use, or none."""
        t, m = self.t, packed.memory
        line = LINE // ELEMENT_BYTES[m.element]
        iterations = length // unroll
        lines = -(-length * int(m.sizes[2]) // line // (iterations * ahead.turns))
        done = t.binary("muli", ahead.turn, t.index(iterations))
        done = t.binary("addi", done, t.binary("divui", k, t.index(unroll)))
        at = t.binary("muli", done, t.index(lines * line))
        for i in range(lines):
            where = ", ".join([ahead.block, t.index(packed.first), t.add(at, i * line)])
            t.line(f"memref.prefetch {m.name}[{where}], read, locality<2>, data : {m.kind}")

    def _unroll(self, accumulators: int, length: int) -> int:
        """Steps of k per iteration: enough work to hide the loop where there are few sums."""
        wanted = max(1, self.tile.unroll // accumulators)
        return next((u for u in (8, 4, 2) if u <= wanted and length % u == 0), 1)

    def _clear(
        self, mask: Atom, row: str, keys: list[Key], acc: dict[Key, str], zero: str, kind: str
    ) -> None:
        """Sums of a row that does not count become zero."""
        there = self.e.value(mask, Place(row, None), False, None, {})
        for k in keys:
            acc[k] = self.t.op(f"arith.select {there}, {acc[k]}, {zero} : {kind}")

    def _weight(self, m: Memory, there: tuple[str, str], lane: int, dtype: DType) -> str:
        t = self.t
        v = load_vector(t, m, [*there, t.index(lane)])
        if m.element == scalar_type(dtype):
            return v
        return t.op(f"arith.extf {v} : {t.vector(m.element)} to {t.vector(scalar_type(dtype))}")

    def _wider(self, x: str, old: DType, new: DType) -> str:
        if old is new:
            return x
        return self.t.op(f"arith.extf {x} : {scalar_type(old)} to {scalar_type(new)}")

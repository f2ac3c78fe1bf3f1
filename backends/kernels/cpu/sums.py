"""Products of one block of columns with some rows, register-blocked; their sums go to a buffer.

A tile keeps the sums of some rows and vectors in registers over all k. Where registers are few, the
vectors of a block are summed a part at a time: taller tiles read each weight less often. Where the
weights of a step come from L3, every part asks for a piece of the next block's: else the first tile
of a block would wait for them, and the others would leave L3 idle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from lstm_ir.backends.kernels.body.atoms import Atom
from lstm_ir.backends.kernels.body.plan import PAIR, KLoop, Sweep
from lstm_ir.backends.kernels.call.packing import Packed
from lstm_ir.backends.kernels.cpu.register_tile import add_products
from lstm_ir.backends.kernels.cpu.row_order import RowOrder
from lstm_ir.backends.kernels.cpu.words import add_words, for_weights
from lstm_ir.backends.kernels.text.evaluate import Evaluator, row_element, row_word
from lstm_ir.backends.kernels.text.memory import ELEMENT_BYTES, ElementPlace, Memory, load_vector, store_vector
from lstm_ir.backends.kernels.text.statements import Name, TextOperand
from lstm_ir.backends.kernels.text.text import Text, scalar_type
from lstm_ir.backends.memory import LINE
from lstm_ir.ir.types import DType

Vector = tuple[int, int]  # of a block: vector of columns, gate
Sum = tuple[int, int, int]  # of a tile: row, vector of columns, gate


@dataclass(frozen=True)
class Shape:
    """A register tile: rows, and the vectors of a block that are summed at a time."""

    rows: int
    vectors: int
    products: int = 16  # of an iteration, about


@dataclass(frozen=True)
class Tile:
    """Blocking of a sweep: `q` vectors of columns; tiles of rows, tallest first, down to one row."""

    q: int
    shapes: tuple[Shape, ...] = (Shape(1, 1),)
    group: int = 1  # rows whose sums the buffer holds
    chunk: int = 1  # rows that a team has at least, where there are several
    ahead: bool = False  # whether the next block's weights are asked for
    parts: int = 1  # of a block's rows, for members that share its columns
    beside: int = 0  # vectors of packed weights side by side; 0: all of a block

    @property
    def tallest(self) -> int:
        """Rows of the tallest tile."""
        return self.shapes[0].rows

    def whole(self, q: int) -> Tile:
        """Blocks of so many vectors, whose rows stay together."""
        return replace(self, q=q, parts=1, beside=self.beside if q == self.q else 0)

    def blocks(self, width: int, lanes: int) -> int:
        """Blocks of a sweep's columns; numbers, of width 0, are one."""
        return -(-width // (lanes * self.q)) if width else 1


class Ahead(NamedTuple):
    """The block that comes next, and which of so many loops over k asks for its piece of it."""

    block: TextOperand
    turn: TextOperand
    turns: int


class Part(NamedTuple):
    """What one loop over k sums."""

    block: TextOperand
    shape: Shape
    rows: list[TextOperand]
    slot: TextOperand  # of the first row, in the buffer
    vectors: list[Vector]
    first: TextOperand  # so many vectors further than `vectors` says
    ahead: Ahead | None


@dataclass
class Sums:
    """Writes the products of a sweep: `packed` are the weights of each pass."""

    t: Text
    e: Evaluator
    sweep: Sweep
    tile: Tile
    packed: Mapping[int, Packed]  # by number of the pass
    buffer: Memory
    word_product: str  # how products of int8 are made
    turns: Mapping[KLoop, TextOperand]  # of passes whose turns the step decides
    order: RowOrder | None = None  # of rows, some of which need no sums

    def write(self, block: TextOperand, following: TextOperand, first: TextOperand, count: TextOperand) -> None:
        """Sums of the rows at `count` places from `first` on, at most a group; the block `following` comes next."""
        t = self.t
        if self.order is not None:
            count = self.order.count(first, count, [shape.rows for shape in self.tile.shapes])
        at: TextOperand = t.index(0)
        for shape in self.tile.shapes:
            n = t.index(shape.rows)
            fit = t.binary("muli", t.binary("divui", t.binary("subi", count, at), n), n)
            end = t.binary("addi", at, fit)
            with t.loop(at, end, n) as slot:
                place = t.binary("addi", first, slot)
                rows: list[TextOperand] = [t.add(place, r) for r in range(shape.rows)]
                if self.order is not None:
                    rows = [self.order.row(p) for p in rows]
                self._tile(block, following, shape, rows, slot)
            at = end

    def _tile(
        self, block: TextOperand, following: TextOperand, shape: Shape, rows: list[TextOperand], slot: TextOperand
    ) -> None:  # fmt: skip
        """Part by part, in a loop where they differ in nothing but where they start."""
        t, n = self.t, shape.vectors
        every = [(v, g) for v in range(self.tile.q) for g in range(len(self.sweep.dots))]
        count = -(-len(every) // n)
        turns = count * -(-self.tile.group // shape.rows)
        before: TextOperand | None = None
        if self.tile.ahead:
            before = t.binary("divui", slot, t.index(shape.rows))
            before = t.binary("muli", before, t.index(count))

        def part(number: TextOperand, vectors: list[Vector], first: TextOperand) -> None:
            ahead = None
            if before is not None:
                ahead = Ahead(following, t.binary("addi", before, number), turns)
            self._part(Part(block, shape, rows, slot, vectors, first, ahead))

        if count > 1 and len(every) % n == 0 and self._same_gates(n):
            with t.loop(t.index(0), t.index(count), t.index(1)) as number:
                part(number, every[:n], t.binary("muli", number, t.index(n)))
        else:
            for i in range(count):
                part(t.index(i), every[i * n : (i + 1) * n], t.index(0))

    def _same_gates(self, n: int) -> bool:
        """Whether every pass adds to every sum, and parts of n sums differ in where their weights start alone."""
        rows, sums = len(self.sweep.loops[0].rows), range(len(self.sweep.dots))
        every = [list(sums[i::rows]) for i in range(rows)]
        return n % rows == 0 and all(loop.sums == every for loop in self.sweep.loops)

    def _part(self, part: Part) -> None:
        t, width = self.t, len(self.sweep.dots)
        sums: dict[Sum, TextOperand] = {}
        for number in range(len(self.sweep.loops)):
            self._pass(number, part, sums)
        for (r, v, g), value in sums.items():
            there = [t.add(part.slot, r), t.add(part.first, v * width + g), t.index(0)]
            store_vector(t, value, self.buffer, there)

    def _pass(self, number: int, part: Part, sums: dict[Sum, TextOperand]) -> None:
        """Adds the products of one row of operands, for those vectors that it has."""
        t, packed, loop = self.t, self.packed[number], self.sweep.loops[number]
        at_gate = {g: i for of_row in loop.sums for i, g in enumerate(of_row)}
        places = {(v, g): v * len(loop.gates) + at_gate[g] for v, g in part.vectors if g in at_gate}
        if not places:
            return
        dtype = self.sweep.dots[loop.gates[0][0]].dtype
        kind = t.vector(scalar_type(dtype))
        zero = t.number(0.0, dtype, True)
        keys = [(r, *vector) for r in range(len(part.rows)) for vector in places]
        wanted = max(1, part.shape.products // (PAIR * len(keys) if loop.in_pairs else len(keys)))
        unroll = next((u for u in (8, 4, 2) if u <= wanted and loop.turns % u == 0), 1)
        init, kinds = [sums.get(k, zero) for k in keys], [kind] * len(keys)
        start = t.binary("divui", part.first, t.index(len(loop.rows))) if loop.alike else part.first

        place = self._places(packed, len(loop.gates), part.block, start)

        def loaded(row: TextOperand) -> dict[Vector, Name]:
            """This row of packed weights, in those vectors."""
            at = {}
            for n in dict.fromkeys(places.values()):
                block, column = place(n)
                at[n] = load_vector(t, packed.memory, [block, row, column])
            return {vector: at[n] for vector, n in places.items()}

        if loop.in_words:
            begin = self._begin(loop, loaded(t.index(packed.first + loop.turns)))
            init = [t.binary("addi", sums[k], begin[k[1:]], kind) if k in sums else begin[k[1:]] for k in keys]
        turns = self.turns.get(loop, t.index(loop.turns))
        first, inside, out = t.carried(t.index(0), turns, t.index(unroll), init, kinds)
        if part.ahead is not None:
            self._ask(packed, part.ahead, loop, first, unroll)
        current = dict(zip(keys, inside, strict=True))
        product = for_weights(self.word_product, packed.symmetric)
        begin_k = t.binary("muli", first, t.index(PAIR)) if loop.in_pairs else first
        for u in range(unroll):
            words = loaded(t.add(first, packed.first + u))
            if loop.in_words:
                for r, row in enumerate(part.rows):
                    for atom, its in zip(loop.rows, loop.sums, strict=True):
                        x = row_word(self.e, atom, row, t.add(first, u))
                        mine = {v: w for v, w in words.items() if v[1] in its}
                        add_words(t, product, current, x, _of_row(r, mine), loop.offset)
                continue
            for i in range(loop.per_word):
                k = t.add(begin_k, u * loop.per_word + i)
                weights = {v: self._weight(w, packed.memory, dtype, i) for v, w in words.items()}
                for r, row in enumerate(part.rows):
                    x = self.e.ops.convert(row_element(self.e, loop.row, row, k), loop.row.dtype, dtype, False)
                    add_products(t, current, x, _of_row(r, weights), scalar_type(dtype))
        t.close([current[k] for k in keys], kinds)
        sums.update(zip(keys, out, strict=True))
        if loop.mask is not None:
            for r, row in enumerate(part.rows):
                self._clear(loop.mask, row, [k for k in keys if k[0] == r], sums, zero, kind)

    def _places(
        self, packed: Packed, gates: int, block: TextOperand, start: TextOperand
    ) -> Callable[[int], tuple[TextOperand, TextOperand]]:
        """Where the vector is that comes so many behind the vector `start` of a block, which begins a part."""
        t, beside, parts = self.t, packed.beside(self.t.lanes), self._parts(packed, gates)
        if parts == 1:
            lane = t.binary("muli", start, t.index(t.lanes))
            return lambda n: (block, t.add(lane, n * t.lanes))
        first = t.binary("divui", start, t.index(beside))
        first = t.binary("addi", t.binary("muli", block, t.index(parts)), first)
        return lambda n: (t.add(first, n // beside), t.index(n % beside * t.lanes))

    def _parts(self, packed: Packed, gates: int) -> int:
        """Of a block of packed weights."""
        return self.tile.q * gates // packed.beside(self.t.lanes)

    def _ask(self, packed: Packed, ahead: Ahead, loop: KLoop, k: TextOperand, unroll: int) -> None:
        """Asks for this iteration's lines of the following block, as many of each of its parts. Past the last block,
        and where the loops are more than `turns`, these are of no use, or no weights."""
        t, m = self.t, packed.memory
        line, length, parts = LINE // ELEMENT_BYTES[m.element], loop.turns, self._parts(packed, len(loop.gates))
        iterations = length // unroll
        lines = -(-length * m.size(2) // line // (iterations * ahead.turns))
        done = t.binary("muli", ahead.turn, t.index(iterations))
        done = t.binary("addi", done, t.binary("divui", k, t.index(unroll)))
        at = t.binary("muli", done, t.index(lines * line))
        first = ahead.block if parts == 1 else t.binary("muli", ahead.block, t.index(parts))
        for part in range(parts):
            for i in range(lines):
                where = [t.add(first, part), t.index(packed.first), t.add(at, i * line)]
                t.line("memref.prefetch {}[{}], read, locality<2>, data : {}", m.ref, where, m.kind)

    def _begin(self, loop: KLoop, sums: dict[Vector, Name]) -> dict[Vector, Name]:
        """What sums begin with: without turns nothing."""
        t, kind = self.t, self.t.vector("i32")
        if loop not in self.turns:
            return sums
        some, zero = t.compare("ne", self.turns[loop], t.index(0)), t.number(0.0, DType.i32, True)
        return {v: t.select(some, begin, zero, kind) for v, begin in sums.items()}

    def _clear(
        self, mask: Atom, row: TextOperand, keys: list[Sum], sums: dict[Sum, TextOperand],
        zero: TextOperand, kind: str,
    ) -> None:  # fmt: skip
        """Sums of a row that does not count become zero."""
        there = self.e.value(mask, ElementPlace(row, None), False, None, {})
        for k in keys:
            sums[k] = self.t.op("arith.select {}, {}, {} : {}", there, sums[k], zero, kind)

    def _weight(self, v: Name, m: Memory, dtype: DType, half: int) -> Name:
        """What was loaded as the products' type; of a pair of bf16 one half: such a number is the upper half of an
        f32."""
        t, wide = self.t, self.t.vector(scalar_type(dtype))
        if m.element == "i32":
            kind = t.vector("i32")
            way, number = ("andi", -(1 << 16)) if half else ("shli", 16)
            bits = t.binary(way, v, t.constant(str(number), kind), kind)
            return t.op("arith.bitcast {} : {} to {}", bits, kind, wide)
        if m.element == scalar_type(dtype):
            return v
        way = "arith.sitofp" if m.element == "i8" else "arith.extf"
        return t.op("{} {} : {} to {}", way, v, t.vector(m.element), wide)


def _of_row(r: int, vectors: Mapping[Vector, Name]) -> dict[Sum, Name]:
    """What a row of a tile is multiplied by, by the sum that each vector adds to."""
    return {(r, *vector): v for vector, v in vectors.items()}

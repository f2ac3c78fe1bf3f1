"""A stencil of many outputs by a CPU kernel: vectors are outputs, and a tile has some places.

What a block of results sees is copied (panel.py), some channels at a time, so that every tap reads at one distance from
a result's place, whatever strides, dilations and paddings are. A tile goes through all terms of these channels with
its sums in registers; sums of a block are on the stack, and turned in squares where the results are stored, whose
places are neighbours in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from iree.compiler import ir

from lstm_ir import ops
from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.kernels.call.call import Values, ready
from lstm_ir.backends.kernels.cpu import panel as panels
from lstm_ir.backends.kernels.cpu import shares
from lstm_ir.backends.kernels.cpu.machine import BLOCK_SUMS, CHUNK_TERMS, FILLED, OUTPUT_COST, STENCIL_PANEL, machine
from lstm_ir.backends.kernels.cpu.panel import PanelForm
from lstm_ir.backends.kernels.cpu.panel_call import PanelCall
from lstm_ir.backends.kernels.cpu.register_tile import add_products
from lstm_ir.backends.kernels.cpu.squares import turned
from lstm_ir.backends.kernels.cpu.stencil_after import AfterSums, AfterText
from lstm_ir.backends.kernels.text.kernel import Kernel, KernelSignature, called_by_iree
from lstm_ir.backends.kernels.text.memory import Memory, load_vector, on_stack, put_memories, store_vector
from lstm_ir.backends.kernels.text.statements import Name, TextOperand, argument
from lstm_ir.backends.kernels.text.text import Text, stored_type
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive.planes import Phases, of_taps
from lstm_ir.ops.primitive.stencil import Taps

# Numbers of the kernel beside a panel's: workgroups; batches times groups, groups; tiles, outputs, channels and taps of
# a group; channels that a panel has, chunks of so many.
GROUPS, OUTER, KINDS, TILES, OUTPUTS, CHANNELS, TAPS, HELD, CHUNKS = (
    argument(w) for w in ("groups", "outer", "kinds", "tiles", "outputs", "channels", "taps", "held", "chunks")
)
Y_HEIGHT, Y_WIDTH = argument("y_height"), argument("y_width")  # of the result, of all phases
ALL_TILES, TERMS, ALL_OUTPUTS, PLACES = (argument(w) for w in ("all_tiles", "terms", "all_outputs", "places"))


@dataclass(frozen=True)
class OutputTile:
    """Places and vectors of outputs of a tile, and tiles of a group's outputs."""

    places: int
    vectors: int
    tiles: int
    lanes: int

    @classmethod
    def of(cls, target: TargetInfo, dtype: DType, outputs: int) -> OutputTile | None:
        """None where vectors of outputs would be rather empty."""
        lanes = max(1, target.vector_bits // dtype.bits)
        vectors = -(-outputs // lanes)
        if lanes < 2 or outputs < FILLED * vectors * lanes:
            return None
        have = machine(target).output_tiles
        wide = min(have, key=lambda n: (-(-vectors // n) * n * OUTPUT_COST[n], -n))
        return cls(have[wide], wide, -(-vectors // wide), lanes)

    @property
    def width(self) -> int:
        """Outputs of a tile."""
        return self.vectors * self.lanes


@dataclass
class OutputStencil(PanelCall):
    """One such call."""

    tile: OutputTile
    phases: Phases
    word: ClassVar[str] = "stencil"

    def packed(self, rhs: ir.Value) -> ir.Value:
        """[G tiles, E K, width] of rhs [G,M,E,K], phase by phase; outputs that do not exist are zero."""
        (groups, outputs, each, count), tile = self.kernels, self.tile
        w = parameter("w", TensorType(self.kernels, self.dtype))
        turned = ops.transpose(w, (0, 2, 3, 1))
        parts = [of_taps(turned, which, 2) for which in self.phases.which if which]
        rows = ops.concat([ops.reshape(v, (groups, each * v.shape[2], outputs)) for v in parts], 1)
        rows = ops.pad(rows, (0, 0, 0), (0, 0, tile.tiles * tile.width - outputs))
        tiles = ops.transpose(ops.reshape(rows, (groups, each * count, tile.tiles, tile.width)), (0, 2, 1, 3))
        tiles = ops.reshape(tiles, (groups * tile.tiles, each * count, tile.width))
        return self.e.graph(Graph("kernels", [w], [tiles]), [rhs])[0]

    @property
    def _bytes(self) -> int:
        return self.dtype.bits // 8

    def run(
        self, lhs: ir.Value, given: TensorType, packed: ir.Value, to: TensorType, after: AfterSums | None = None
    ) -> ir.Value:
        """The dispatch, of what follows its sums too: lines of results."""
        (groups, outputs, each, count), tile, form = self.kernels, self.tile, self.form
        sizes, phases = self.phases.counts(*to.shape[3:]), self.phases
        held = min(each, max(1, min(STENCIL_PANEL // self._bytes // form.plane, -(-CHUNK_TERMS // count))))
        chunks = 1 if form.direct else -(-each // held)
        held = -(-each // chunks)
        self.see(lhs, given, held, phases.seen)
        self.input(ready(packed), TensorType((groups * tile.tiles, each * count, tile.width), self.dtype))
        self.results_of(to, after)
        outer, numbers = dims.mul(given.shape[0], groups), self.numbers(given, sizes)
        numbers |= {OUTER: outer, KINDS: groups, TILES: tile.tiles, OUTPUTS: outputs, CHANNELS: each, TAPS: count}
        numbers |= {HELD: held, CHUNKS: chunks, Y_HEIGHT: to.shape[3], Y_WIDTH: to.shape[4]}
        assert self.e.target is not None
        last = each - (chunks - 1) * held
        most = max(1, machine(self.e.target).products // (tile.places * tile.vectors))
        whole = [math.gcd(held, last) * len(which) for which in phases.which]
        terms = [max(n for n in range(1, most + 1) if k % n == 0) for k in whole]
        text = _OutputText(self.dtype, tile, form, held, phases, terms, after, ragged=outputs % tile.width != 0)

        def total() -> Values:
            return [shares.groups(self, self.muli(self.blocks(outer, sizes), self.const(tile.tiles)))]

        return self.dispatch(text.kernel, [GROUPS], numbers, total)


def output_stencil(e: Emitter, n: Node, to: TensorType) -> OutputStencil | None:
    """The call for a result of this type; None where it is none."""
    assert e.target is not None
    groups, outputs, each, count = (int(d) for d in n.inputs[1].shape)
    tile, taps = OutputTile.of(e.target, to.dtype, outputs), Taps.of(n.attrs)
    if tile is None or max(taps.spacing) > 2:  # results of two phases are stored side by side
        return None
    phases, size = Phases.of(taps), to.dtype.bits // 8
    places = BLOCK_SUMS // size // tile.width // len(phases.which) // tile.places * tile.places
    one_row = phases.spacing != (1, 1)
    form = PanelForm.of(phases.taps, phases.counts(*to.shape[3:]), places, STENCIL_PANEL // size, one_row=one_row)
    return None if form is None else OutputStencil(e, to.dtype, (groups, outputs, each, count), form, tile, phases)


class _OutputText:
    """The kernel's function.

    held: channels of a panel; terms: of an iteration, for each phase; ragged: the last tile has outputs that do not
    exist.
    """

    def __init__(
        self, dtype: DType, tile: OutputTile, form: PanelForm, held: int, phases: Phases, terms: Sequence[int],
        after: AfterSums | None, *, ragged: bool,
    ) -> None:  # fmt: skip
        self.t, self.tile = Text(tile.lanes), tile
        self.one_row, self.phases, self.terms, self.ragged = form.rows == 1, phases, terms, ragged
        element = self.element = stored_type(dtype)
        self.seen = panels.Seen.of(self.t, element, form, held)
        self.w = Memory("%m_w", element, (ALL_TILES, TERMS, tile.width))
        self.y = Memory("%m_y", element, (ALL_OUTPUTS, PLACES))
        # The last tile and the last square may have places behind the block's.
        self.room = max(-(-form.places // n) * n for n in (tile.places, tile.lanes))
        self.sums = on_stack(self.t, element, (len(phases.which) * self.room, tile.width))
        self.after = None if after is None else AfterText(self.t, after, ALL_OUTPUTS, PLACES)
        if after is not None:
            self.held = on_stack(self.t, element, (tile.lanes, phases.spacing[1] * tile.lanes))

    def kernel(self, taken: KernelSignature, numbers: Mapping[Name, Dim]) -> Kernel:
        """One function, its memories first."""
        t = self.t
        panels.put_known(t, numbers)
        t.binary("muli", KINDS, TILES, to=ALL_TILES)
        t.binary("muli", CHANNELS, TAPS, to=TERMS)
        t.binary("muli", OUTER, OUTPUTS, to=ALL_OUTPUTS)
        t.binary("muli", Y_HEIGHT, Y_WIDTH, to=PLACES)
        bindings = iter((*taken.reads, *taken.writes))
        lines = t.binary("muli", t.binary("muli", OUTER, CHANNELS), panels.HEIGHT)
        self.seen.put(lines, t.binary("muli", HELD, TAPS), bindings)
        beside = () if self.after is None else self.after.put(OUTER, KINDS, OUTPUTS)
        put_memories(t, bindings, (self.w, *beside, self.y))
        self._all()
        return Kernel((t.function("", taken, called_by_iree()),))

    def _all(self) -> None:
        """Units of this workgroup: tiles of outputs of a block of one batch and group."""
        t = self.t
        down, across = panels.blocks(t)
        each = t.binary("muli", down, across)
        units = t.binary("muli", t.binary("muli", OUTER, each), TILES)
        low, high = shares.share(t, units, GROUPS)
        with t.loop(low, high, t.index(1)) as unit:
            tile, place = t.binary("remui", unit, TILES), t.binary("divui", unit, TILES)
            outer, number = t.binary("divui", place, each), t.binary("remui", place, each)
            self._unit(outer, tile, panels.block(t, number, across))

    def _unit(self, outer: TextOperand, tile: TextOperand, b: panels.ResultBlock) -> None:
        """One tile of outputs over a block, some channels after the other."""
        t = self.t
        count = t.binary("muli", b.rows, b.columns)
        first = t.binary("muli", outer, CHANNELS)
        kernels = t.binary("addi", t.binary("muli", t.binary("remui", outer, KINDS), TILES), tile)
        none = t.index(0)
        zero = t.constant("0.0", t.vector(self.element))
        for p in range(len(self.phases.which)):
            with t.loop(none, count, t.index(1)) as place:
                for q in range(self.tile.vectors):
                    store_vector(t, zero, self.sums, [t.add(place, p * self.room), t.index(q * t.lanes)])
        with t.loop(none, CHUNKS, t.index(1)) as chunk:
            channel = t.binary("muli", chunk, HELD)
            held = t.binary("minui", t.binary("subi", CHANNELS, channel), HELD)
            line = t.binary("muli", t.binary("addi", first, channel), panels.HEIGHT)
            origin = self.seen.fill(line, held, b)
            with t.loop(none, count, t.index(self.tile.places)) as start:
                bases = self._bases(origin, b, count, start)
                for p, seen in enumerate(self.phases.seen):
                    if len(seen):
                        self._tile(p, seen, kernels, channel, held, bases, start)
        self._store(outer, tile, b, count)

    def _bases(
        self, origin: TextOperand, b: panels.ResultBlock, count: TextOperand, start: TextOperand
    ) -> list[TextOperand]:
        """Where each place of a tile reads first; those behind the last one read as it does."""
        t, last = self.t, self.t.binary("subi", count, self.t.index(1))
        out: list[TextOperand] = []
        for r in range(self.tile.places):
            place = t.binary("minui", t.add(start, r), last)
            at = origin
            if not self.one_row:
                at = t.binary("addi", at, self.seen.down(t.binary("divui", place, b.columns)))
                place = t.binary("remui", place, b.columns)
            out.append(t.binary("addi", at, self.seen.right(place)))
        return out

    def _tile(
        self, p: int, seen: range, kernels: TextOperand, channel: TextOperand, held: TextOperand,
        bases: list[TextOperand], start: TextOperand,
    ) -> None:  # fmt: skip
        """The terms of one phase in a chunk, from `channel` on, for one tile of places, which read from `bases` on."""
        t, tile, kind = self.t, self.tile, self.t.vector(self.element)
        cells = [(r, q) for r in range(tile.places) for q in range(tile.vectors)]
        count, before_it = t.index(len(seen)), t.index(seen.start)
        first = t.binary("addi", t.binary("muli", CHANNELS, before_it), t.binary("muli", channel, count))
        listed, terms = t.binary("muli", HELD, before_it), t.binary("muli", held, count)
        to = t.add(start, p * self.room)
        at = {(r, q): [t.add(to, r), t.index(q * t.lanes)] for r, q in cells}
        before = [load_vector(t, self.sums, at[c]) for c in cells]
        kinds = [kind] * len(cells)
        term, inside, after = t.carried(t.index(0), terms, t.index(self.terms[p]), before, kinds)
        current = dict(zip(cells, inside, strict=True))
        for u in range(self.terms[p]):
            k = t.add(term, u)
            shift = self.seen.term(t.binary("addi", listed, k))
            row = t.binary("addi", first, k)
            weights = [load_vector(t, self.w, [kernels, row, t.index(q * t.lanes)]) for q in range(tile.vectors)]
            for r, base in enumerate(bases):
                x = self.seen.memory.load(t, [t.binary("addi", base, shift)])
                add_products(t, current, x, {(r, q): w for q, w in enumerate(weights)}, self.element)
        t.close([current[c] for c in cells], kinds)
        for c, v in zip(cells, after, strict=True):
            store_vector(t, v, self.sums, at[c])

    def _store(self, outer: TextOperand, tile: TextOperand, b: panels.ResultBlock, count: TextOperand) -> None:
        """The sums of a tile's outputs, turned in squares: their places are neighbours in the result."""
        t = self.t
        first = t.binary("muli", tile, t.index(self.tile.width))
        line = t.binary("addi", t.binary("muli", outer, OUTPUTS), first)
        down, right = self.phases.spacing
        with t.loop(t.index(0), t.index(self.tile.width), t.index(t.lanes)) as q:
            exist = t.binary("maxsi", t.binary("subi", t.binary("subi", OUTPUTS, first), q), t.index(0))
            row = t.binary("addi", line, q)
            with t.loop(t.index(0), count, t.index(t.lanes)) as start:
                left = t.binary("subi", count, start)
                if (down, right) == (1, 1):  # rows that are whole lie one behind the other
                    place = t.binary("addi", t.binary("muli", b.row, Y_WIDTH), b.column)
                    self._squares((0,), q, start, row, t.binary("addi", place, start), left, exist)
                else:
                    self._rows(q, start, row, b, left, exist)

    def _rows(
        self, q: TextOperand, start: TextOperand, row: TextOperand, b: panels.ResultBlock, left: TextOperand,
        exist: TextOperand,
    ) -> None:  # fmt: skip
        """The rows of the result that a block's row stands for."""
        t, (down, right) = self.t, self.phases.spacing
        column = t.binary("muli", t.binary("addi", b.column, start), t.index(right))
        left = t.binary("minui", t.binary("muli", left, t.index(right)), t.binary("subi", Y_WIDTH, column))
        for phase in range(down):
            y_row = t.add(t.binary("muli", b.row, t.index(down)), phase)
            place = t.binary("addi", t.binary("muli", y_row, Y_WIDTH), column)
            with t.when(t.compare("ult", y_row, Y_HEIGHT)):
                mine = tuple(range(phase * right, (phase + 1) * right))
                self._squares(mine, q, start, row, place, left, exist)

    def _squares(
        self, phases: tuple[int, ...], q: TextOperand, start: TextOperand, row: TextOperand, place: TextOperand,
        left: TextOperand, exist: TextOperand,
    ) -> None:  # fmt: skip
        """Squares of one phase, or of two whose places alternate: `left` results from `place` on of `exist` outputs."""
        t, lanes = self.t, self.t.lanes
        squares = []
        for p in phases:
            at = t.add(start, p * self.room)
            rows = [load_vector(t, self.sums, [t.add(at, i), q]) for i in range(lanes)]
            squares.append(turned(t, self.element, rows))
        pairs = zip(*squares, strict=True)
        lines = [self._alternating(*pair) if len(pair) == 2 else list(pair) for pair in pairs]
        whole = t.compare("uge", left, t.index(lanes * len(phases)))
        if self.ragged:
            whole = t.binary("andi", whole, t.compare("uge", exist, t.index(lanes)), "i1")
        if self.after is not None:
            self._hold(lines)
        for way, (room, have) in ((whole, (None, None)), (t.opposite(whole), (left, exist))):
            with t.when(way):
                if self.after is None:
                    for i, vectors in enumerate(lines):
                        self._line(t.index(i), vectors, row, place, room, have)
                else:
                    with t.loop(t.index(0), t.index(lanes), t.index(1)) as line:
                        held = [load_vector(t, self.held, [line, t.index(j * lanes)]) for j in range(len(phases))]
                        self._line(line, held, row, place, room, have)

    def _hold(self, lines: list[list[TextOperand]]) -> None:
        """Squares on the stack, for a loop over their lines: what follows the sums is written once."""
        for i, vectors in enumerate(lines):
            for j, v in enumerate(vectors):
                store_vector(self.t, v, self.held, [self.t.index(i), self.t.index(j * self.t.lanes)])

    def _line(
        self, i: TextOperand, vectors: Sequence[TextOperand], row: TextOperand, place: TextOperand,
        left: TextOperand | None, exist: TextOperand | None,
    ) -> None:  # fmt: skip
        """Store one line of squares; of `left` places where that is given, and only where it is one of `exist`."""
        t, lanes = self.t, self.t.lanes
        if left is not None and self.ragged:
            assert exist is not None
            left = t.select(t.compare("ult", i, exist), left, t.index(0))
        to = t.binary("addi", row, i)
        for j, v in enumerate(vectors):
            mask = None
            if left is not None:
                rest = left if j == 0 else t.binary("maxsi", t.binary("subi", left, t.index(j * lanes)), t.index(0))
                mask = t.mask(rest)
            at = t.add(place, j * lanes)
            if self.after is not None:
                perhaps = left is not None and self.ragged  # a line of no output reads as the last one does
                line = t.binary("minui", to, t.add(ALL_OUTPUTS, -1)) if perhaps else to
                v = self.after.result(v, line, at, mask)
            store_vector(t, v, self.y, [to, at], mask)

    def _alternating(self, a: TextOperand, b: TextOperand) -> list[TextOperand]:
        """Elements of both in turn, as two vectors."""
        t, n = self.t, self.t.lanes
        ways = [[lane // 2 + half + n * (lane % 2) for lane in range(n)] for half in (0, n // 2)]
        return [t.op(f"vector.shuffle {{}} {way} : {{}}", [a, b], [t.vector(self.element)] * 2) for way in ways]

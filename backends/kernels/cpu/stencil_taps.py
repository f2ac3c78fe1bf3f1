"""The gradient of a stencil by its taps, by a CPU kernel: vectors are outputs, and a tile has some taps of channels.

A workgroup has some channels of one tile of outputs. For each block of places it turns the cotangent in squares, so
that outputs are neighbours, and copies what the block sees of some channels (panel.py); then a tile after the other
goes through the places, its sums in registers. Between blocks sums are in memory; at the end they are turned as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.shapes import reshape
from lstm_ir.backends.kernels.call.call import Values, ready
from lstm_ir.backends.kernels.call.given import given
from lstm_ir.backends.kernels.cpu import panel as panels
from lstm_ir.backends.kernels.cpu.machine import FEWEST_PLACES, STENCIL_PANEL, TAP_ROWS, TURNED
from lstm_ir.backends.kernels.cpu.panel import PanelForm
from lstm_ir.backends.kernels.cpu.panel_call import PanelCall
from lstm_ir.backends.kernels.cpu.register_tile import add_products
from lstm_ir.backends.kernels.cpu.squares import turned
from lstm_ir.backends.kernels.cpu.stencil_outputs import OutputTile
from lstm_ir.backends.kernels.cpu.workers import workers
from lstm_ir.backends.kernels.text.kernel import Kernel, KernelSignature, called_by_iree
from lstm_ir.backends.kernels.text.memory import Memory, load_vector, on_stack, put_memories, store_vector
from lstm_ir.backends.kernels.text.statements import Name, TextOperand, argument
from lstm_ir.backends.kernels.text.text import Text, stored_type
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive.stencil import Taps

# Numbers of the kernel beside a panel's: workgroups; groups, of each tiles of outputs, of each parts of the chunks of
# channels; rows of the batch; outputs, channels and taps of a group; channels of a chunk, and its rows: of each channel
# and tap, up to whole tiles.
GROUPS, KINDS, TILES, PARTS, BATCH, OUTPUTS, CHANNELS, TAPS, HELD, ROWS, CHUNKS = (
    argument(w)
    for w in (
        "groups", "kinds", "tiles", "parts", "batch", "outputs", "channels", "taps", "held", "rows", "chunks",
    )
)  # fmt: skip
CT_LINES, PLACES, ALL_OUTPUTS, TERMS, SUM_ROWS = (
    argument(w) for w in ("ct_lines", "places", "all_outputs", "terms", "sum_rows")
)


def lower_stencil_taps(e: Emitter, n: Node, lhs: ir.Value, ct: ir.Value, to: TensorType) -> ir.Value | None:
    """The gradient by the taps, f32 or f64, where a group has enough outputs; None where it is none. All have `to`'s
    dtype."""
    a, b = (v.type.with_dtype(to.dtype) for v in n.inputs)
    taps = Taps.of(n.attrs)
    if to.dtype not in (DType.f32, DType.f64) or not to.is_static or not e.at_top or taps.spacing != (1, 1):
        return None
    if 0 in a.shape or 0 in b.shape or 0 in to.shape or (e.options.helpers and not (given(lhs) or given(ct))):
        return None
    assert e.target is not None
    groups, outputs, each, count = (int(d) for d in to.shape)  # type: ignore[arg-type]
    tile = OutputTile.of(e.target, to.dtype, outputs)
    if tile is None:
        return None
    size = to.dtype.bits // 8
    places = TURNED // size // tile.width // tile.lanes * tile.lanes
    form = PanelForm.of(taps, (b.shape[3], b.shape[4]), places, STENCIL_PANEL // size)
    if form is None or form.places < FEWEST_PLACES:
        return None
    return StencilTaps(e, to.dtype, (groups, outputs, each, count), form, tile).run(lhs, a, ct, b)


@dataclass
class StencilTaps(PanelCall):
    """One such call."""

    tile: OutputTile
    word: ClassVar[str] = "stencil_taps"

    @property
    def held(self) -> int:
        """Channels of a chunk: as many as have room, with few rows of tiles that are none."""
        _, _, each, count = self.kernels
        room = STENCIL_PANEL // (self.dtype.bits // 8) // self.form.plane
        most = max(1, min(each, room, -(-TAP_ROWS // count)))
        tall = self.tile.places
        return min(range(1, most + 1), key=lambda n: (round(-(-n * count // tall) * tall / (n * count), 2), -n))

    def run(self, lhs: ir.Value, a: TensorType, ct: ir.Value, b: TensorType) -> ir.Value:
        """The dispatch."""
        (groups, outputs, each, count), tile, form = self.kernels, self.tile, self.form
        held = self.held
        chunks = -(-each // held)
        rows = -(-held * count // tile.places) * tile.places
        batch, sizes = a.shape[0], (b.shape[3], b.shape[4])
        lines = TensorType((dims.product((batch, groups, outputs)), dims.product(sizes)), self.dtype)
        self.see(lhs, a, held)
        self.input(ready(reshape(self.e, ct, b, lines.shape)), lines)
        result = TensorType((groups * outputs, each * count), self.dtype)
        self.output(result)
        # A square of the last rows may begin before their end.
        sums = TensorType((groups * tile.tiles * chunks * rows + tile.lanes, tile.width), self.dtype)
        self.output(sums)
        numbers = self.numbers(a, sizes)
        numbers |= {KINDS: groups, TILES: tile.tiles, BATCH: batch, OUTPUTS: outputs, CHANNELS: each, TAPS: count}
        numbers |= {HELD: held, ROWS: rows, CHUNKS: chunks}
        text = _TapsText(self.dtype, tile, form, held)

        def total() -> Values:
            units = self.const(groups * tile.tiles)
            parts = self.e.arith("ceildivui", workers(self.e), units)
            parts = self.e.arith("minui", parts, self.const(chunks))
            return [self.muli(units, parts), parts]

        out = self.dispatch(text.kernel, [GROUPS, PARTS], numbers, total)
        return reshape(self.e, out, result, self.kernels)


class _TapsText:
    """The kernel's function."""

    def __init__(self, dtype: DType, tile: OutputTile, form: PanelForm, held: int) -> None:
        self.t, self.tile = Text(tile.lanes), tile
        element = self.element = stored_type(dtype)
        self.seen = panels.Seen.of(self.t, element, form, held)
        self.ct = Memory("%m_ct", element, (CT_LINES, PLACES))
        self.y = Memory("%m_y", element, (ALL_OUTPUTS, TERMS))
        self.sums = Memory("%m_sums", element, (SUM_ROWS, tile.width))
        self.turned = on_stack(self.t, element, (-(-form.places // tile.lanes) * tile.lanes, tile.width))

    def kernel(self, taken: KernelSignature, numbers: Mapping[Name, Dim]) -> Kernel:
        """One function, its memories first."""
        t = self.t
        panels.put_known(t, numbers)
        outer = t.binary("muli", BATCH, KINDS)
        t.binary("muli", outer, OUTPUTS, to=CT_LINES)
        t.binary("muli", panels.OUT_HEIGHT, panels.OUT_WIDTH, to=PLACES)
        t.binary("muli", KINDS, OUTPUTS, to=ALL_OUTPUTS)
        t.binary("muli", CHANNELS, TAPS, to=TERMS)
        of_tile = t.binary("muli", CHUNKS, ROWS)
        tiles = t.binary("muli", KINDS, TILES)
        t.binary("addi", t.binary("muli", tiles, of_tile), t.index(t.lanes), to=SUM_ROWS)
        bindings = iter((*taken.reads, *taken.writes))
        lines = t.binary("muli", t.binary("muli", outer, CHANNELS), panels.HEIGHT)
        self.seen.put(lines, t.binary("muli", HELD, TAPS), bindings)
        put_memories(t, bindings, (self.ct, self.y, self.sums))
        self._all(of_tile)
        return Kernel((t.function("", taken, called_by_iree()),))

    def _all(self, of_tile: TextOperand) -> None:
        """The unit of this workgroup: some chunks of channels of one tile of outputs of one group."""
        t, none, one = self.t, self.t.index(0), self.t.index(1)
        unit = t.workgroup()
        part, rest = t.binary("remui", unit, PARTS), t.binary("divui", unit, PARTS)
        tile, kind = t.binary("remui", rest, TILES), t.binary("divui", rest, TILES)
        share = t.binary("ceildivui", CHUNKS, PARTS)
        low = t.binary("minui", t.binary("muli", part, share), CHUNKS)
        high = t.binary("minui", t.binary("addi", low, share), CHUNKS)
        top = t.binary("muli", rest, of_tile)
        zero = t.constant("0.0", t.vector(self.element))
        start, end = (t.binary("addi", top, t.binary("muli", n, ROWS)) for n in (low, high))
        with t.loop(start, end, one) as row, t.loop(none, t.index(self.tile.width), t.index(t.lanes)) as q:
            store_vector(t, zero, self.sums, [row, q])
        down, across = panels.blocks(t)
        blocks = t.binary("muli", down, across)
        first = t.binary("muli", tile, t.index(self.tile.width))
        with t.loop(none, BATCH, one) as image, t.loop(none, blocks, one) as number:
            outer = t.binary("addi", t.binary("muli", image, KINDS), kind)
            b = panels.block(t, number, across)
            self._turn(outer, first, b)
            with t.loop(low, high, one) as chunk:
                channel = t.binary("muli", chunk, HELD)
                held = t.binary("minui", t.binary("subi", CHANNELS, channel), HELD)
                line = t.binary("addi", t.binary("muli", outer, CHANNELS), channel)
                origin = self.seen.fill(t.binary("muli", line, panels.HEIGHT), held, b)
                at = t.binary("addi", top, t.binary("muli", chunk, ROWS))
                rows = t.binary("muli", held, TAPS)
                with t.loop(none, rows, t.index(self.tile.places)) as row:
                    self._tile(t.binary("addi", at, row), origin, row, rows, b)
        with t.loop(low, high, one) as chunk:
            self._store(kind, first, chunk, t.binary("addi", top, t.binary("muli", chunk, ROWS)))

    def _turn(self, outer: TextOperand, first: TextOperand, b: panels.ResultBlock) -> None:
        """The cotangent of a block, place by place; outputs that do not exist repeat the last."""
        t, none = self.t, self.t.index(0)
        count = t.binary("muli", b.rows, b.columns)
        place = t.binary("addi", t.binary("muli", b.row, panels.OUT_WIDTH), b.column)
        line, last = t.binary("muli", outer, OUTPUTS), t.binary("subi", OUTPUTS, t.index(1))
        with t.loop(none, t.index(self.tile.width), t.index(t.lanes)) as q:
            output = t.binary("addi", first, q)
            lines = [t.binary("addi", line, t.binary("minui", t.add(output, i), last)) for i in range(t.lanes)]
            with t.loop(none, count, t.index(t.lanes)) as start:
                at, left = t.binary("addi", place, start), t.binary("subi", count, start)
                whole = t.compare("uge", left, t.index(t.lanes))
                for yes, mask in ((whole, None), (t.opposite(whole), t.mask(left))):
                    with t.when(yes):
                        square = [load_vector(t, self.ct, [row, at], mask) for row in lines]
                        for i, v in enumerate(turned(t, self.element, square)):
                            store_vector(t, v, self.turned, [t.add(start, i), q])

    def _tile(
        self, to: TextOperand, origin: TextOperand, row: TextOperand, rows: TextOperand, b: panels.ResultBlock
    ) -> None:
        """One tile over the places of a block; those of its rows that do not exist repeat the last."""
        t, tile, kind = self.t, self.tile, self.t.vector(self.element)
        none, one = t.index(0), t.index(1)
        last = t.binary("subi", rows, one)
        terms = [self.seen.term(t.binary("minui", t.add(row, r), last)) for r in range(tile.places)]
        bases = [t.binary("addi", origin, term) for term in terms]
        cells = [(r, q) for r in range(tile.places) for q in range(tile.vectors)]
        at = {(r, q): [t.add(to, r), t.index(q * t.lanes)] for r, q in cells}
        kinds = [kind] * len(cells)
        i, outside, found = t.carried(none, b.rows, one, [load_vector(t, self.sums, at[c]) for c in cells], kinds)
        down = self.seen.down(i)
        before = t.binary("muli", i, b.columns)
        starts = [t.binary("addi", base, down) for base in bases]
        j, inside, after = t.carried(none, b.columns, one, outside, kinds)
        current = dict(zip(cells, inside, strict=True))
        place, column = t.binary("addi", before, j), self.seen.right(j)
        cts = [load_vector(t, self.turned, [place, t.index(q * t.lanes)]) for q in range(tile.vectors)]
        for r, start in enumerate(starts):
            seen = self.seen.memory.load(t, [t.binary("addi", start, column)])
            add_products(t, current, seen, {(r, q): v for q, v in enumerate(cts)}, self.element)
        t.close([current[c] for c in cells], kinds)
        t.close(after, kinds)
        for c, v in zip(cells, found, strict=True):
            store_vector(t, v, self.sums, at[c])

    def _store(self, kind: TextOperand, first: TextOperand, chunk: TextOperand, at: TextOperand) -> None:
        """The sums of a chunk, turned in squares: taps and channels are neighbours in the result."""
        t, none = self.t, self.t.index(0)
        channel = t.binary("muli", chunk, HELD)
        held = t.binary("minui", t.binary("subi", CHANNELS, channel), HELD)
        rows, column = t.binary("muli", held, TAPS), t.binary("muli", channel, TAPS)
        line = t.binary("addi", t.binary("muli", kind, OUTPUTS), first)
        with t.loop(none, t.index(self.tile.width), t.index(t.lanes)) as q:
            exist = t.binary("maxsi", t.binary("subi", t.binary("subi", OUTPUTS, first), q), none)
            with t.loop(none, rows, t.index(t.lanes)) as start:
                row = t.binary("addi", at, start)
                square = [load_vector(t, self.sums, [t.add(row, i), q]) for i in range(t.lanes)]
                left = t.binary("subi", rows, start)
                to = [t.binary("addi", line, q), t.binary("addi", column, start)]
                for i, v in enumerate(turned(t, self.element, square)):
                    here = t.compare("ult", t.index(i), exist)
                    mask = t.mask(t.select(here, left, none))
                    store_vector(t, v, self.y, [t.add(to[0], i), to[1]], mask)

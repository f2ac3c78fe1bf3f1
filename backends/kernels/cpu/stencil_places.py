"""A stencil of few outputs and few channels by a CPU kernel, as of one channel each: vectors are places of a row.

What a block of a row sees of all channels is on the stack (panel.py), with zeros where lhs ends. A tile has some
outputs and some vectors of places in registers and goes through channels and taps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from iree.compiler import ir

from lstm_ir import ops
from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.kernels.call.call import ready
from lstm_ir.backends.kernels.cpu import panel as panels
from lstm_ir.backends.kernels.cpu import shares
from lstm_ir.backends.kernels.cpu.machine import ROW_PLACES, STENCIL_PANEL, tile_of_places
from lstm_ir.backends.kernels.cpu.panel import PanelForm
from lstm_ir.backends.kernels.cpu.panel_call import PanelCall
from lstm_ir.backends.kernels.cpu.register_tile import add_products
from lstm_ir.backends.kernels.cpu.stencil_after import AfterSums, AfterText
from lstm_ir.backends.kernels.text.kernel import Kernel, KernelSignature, called_by_iree
from lstm_ir.backends.kernels.text.memory import Memory, load_vector, put_memories, store_vector
from lstm_ir.backends.kernels.text.statements import Name, TextOperand, argument
from lstm_ir.backends.kernels.text.text import Text, stored_type
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.primitive.stencil import Taps

# Numbers of the kernel beside a panel's: workgroups; batches times groups, groups; tiles of a group's outputs, outputs,
# channels and terms of a group.
GROUPS, OUTER, KINDS, TILES, OUTPUTS, CHANNELS, TERMS = (
    argument(w) for w in ("groups", "outer", "kinds", "tiles", "outputs", "channels", "terms")
)
ALL_TILES, ALL_OUTPUTS, PLACES = (argument(w) for w in ("all_tiles", "all_outputs", "places"))


def place_stencil(e: Emitter, n: Node, to: TensorType) -> PlaceStencil | None:
    """The call for a result of this type; None where places of a row are no neighbours, or see too much."""
    assert e.target is not None
    groups, outputs, each, count = (int(d) for d in n.inputs[1].shape)
    taps, width, size = Taps.of(n.attrs), to.shape[4], to.dtype.bits // 8
    lanes = max(1, e.target.vector_bits // to.dtype.bits)
    if taps.spacing != (1, 1) or taps.strides[1] != 1 or (isinstance(width, int) and width < 2 * lanes):
        return None
    form = PanelForm.of(taps, (to.shape[3], width), ROW_PLACES, STENCIL_PANEL // size // each, one_row=True)
    if form is None or form.columns < 2 * lanes:
        return None
    (rows, most), needed = tile_of_places(e.target, outputs), -(-form.columns // lanes)
    vectors = -(-needed // -(-needed // most))  # a row's tiles are about equal
    return PlaceStencil(e, to.dtype, (groups, outputs, each, count), form, rows, vectors, lanes)


@dataclass
class PlaceStencil(PanelCall):
    """One such call: tiles of `rows` outputs and `vectors` vectors of places."""

    rows: int
    vectors: int
    lanes: int
    word: ClassVar[str] = "stencil"

    @property
    def tiles(self) -> int:
        """Of outputs; the last one begins early where they do not divide."""
        return -(-self.kernels[1] // self.rows)

    def packed(self, rhs: ir.Value) -> ir.Value:
        """[G tiles, E K, rows] of rhs [G,M,E,K]."""
        groups, outputs, each, count = self.kernels
        w = parameter("w", TensorType(self.kernels, self.dtype))
        first = [min(i * self.rows, outputs - self.rows) for i in range(self.tiles)]
        tiles = ops.stack([ops.slice(w, (0, m, 0, 0), (groups, m + self.rows, each, count)) for m in first], 1)
        tiles = ops.reshape(ops.transpose(tiles, (0, 1, 3, 4, 2)), (groups * self.tiles, each * count, self.rows))
        return self.e.graph(Graph("kernels", [w], [tiles]), [rhs])[0]

    def run(
        self, lhs: ir.Value, given: TensorType, packed: ir.Value, to: TensorType, after: AfterSums | None = None
    ) -> ir.Value:
        """The dispatch, of what follows its sums too: lines of results."""
        groups, outputs, each, count = self.kernels
        sizes = (to.shape[3], to.shape[4])
        self.see(lhs, given, each)
        self.input(ready(packed), TensorType((groups * self.tiles, each * count, self.rows), self.dtype))
        self.results_of(to, after)
        outer, numbers = dims.mul(given.shape[0], groups), self.numbers(given, sizes)
        numbers |= {OUTER: outer, KINDS: groups, TILES: self.tiles, OUTPUTS: outputs, CHANNELS: each}
        numbers |= {TERMS: each * count}
        text = _PlacesText(self, after)
        return self.dispatch(text.kernel, [GROUPS], numbers, lambda: [shares.groups(self, self.blocks(outer, sizes))])


def in_spans(
    t: Text, start: TextOperand, end: TextOperand, span: TextOperand,
    write: Callable[[TextOperand, TextOperand | None], None],
) -> None:  # fmt: skip
    """`write` gets the first place of each span of a block, whose last one begins early; of few places their number."""
    count = t.binary("subi", end, start)
    few = t.compare("ult", count, span)
    with t.when(few):
        write(start, count)
    whole = t.select(few, start, end)
    latest = t.binary("subi", end, span)
    with t.loop(start, whole, span) as at:
        write(t.binary("minui", at, latest), None)


class _PlacesText:
    """The kernel's function."""

    def __init__(self, call: PlaceStencil, after: AfterSums | None) -> None:
        self.t, self.rows, self.vectors = Text(call.lanes), call.rows, call.vectors
        element = self.element = stored_type(call.dtype)
        self.seen = panels.Seen.of(self.t, element, call.form, call.kernels[2])
        self.w = Memory("%m_w", element, (ALL_TILES, TERMS, call.rows))
        self.y = Memory("%m_y", element, (ALL_OUTPUTS, PLACES))
        self.after = None if after is None else AfterText(self.t, after, ALL_OUTPUTS, PLACES)

    def kernel(self, taken: KernelSignature, numbers: Mapping[Name, Dim]) -> Kernel:
        """One function, its memories first."""
        t = self.t
        panels.put_known(t, numbers)
        t.binary("muli", KINDS, TILES, to=ALL_TILES)
        t.binary("muli", OUTER, OUTPUTS, to=ALL_OUTPUTS)
        t.binary("muli", panels.OUT_HEIGHT, panels.OUT_WIDTH, to=PLACES)
        bindings = iter((*taken.reads, *taken.writes))
        lines = t.binary("muli", t.binary("muli", OUTER, CHANNELS), panels.HEIGHT)
        self.seen.put(lines, TERMS, bindings)
        beside = () if self.after is None else self.after.put(OUTER, KINDS, OUTPUTS)
        put_memories(t, bindings, (self.w, *beside, self.y))
        self._all()
        return Kernel((t.function("", taken, called_by_iree()),))

    def _all(self) -> None:
        """Units of this workgroup: blocks of one batch and group."""
        t, none, one = self.t, self.t.index(0), self.t.index(1)
        down, across = panels.blocks(t)
        each = t.binary("muli", down, across)
        units = t.binary("muli", OUTER, each)
        low, high = shares.share(t, units, GROUPS)
        last = t.binary("subi", OUTPUTS, t.index(self.rows))
        with t.loop(low, high, one) as unit:
            outer = t.binary("divui", unit, each)
            b = panels.block(t, t.binary("remui", unit, each), across)
            line = t.binary("muli", t.binary("muli", outer, CHANNELS), panels.HEIGHT)
            origin = self.seen.fill(line, CHANNELS, b)
            place = t.binary("addi", t.binary("muli", b.row, panels.OUT_WIDTH), b.column)
            of_group = t.binary("muli", t.binary("remui", outer, KINDS), TILES)
            with t.loop(none, TILES, one) as tile:
                first = t.binary("minui", t.binary("muli", tile, t.index(self.rows)), last)
                row = t.binary("addi", t.binary("muli", outer, OUTPUTS), first)
                kernels = t.binary("addi", of_group, tile)
                write = partial(self._tile, kernels, row, origin, place)
                in_spans(t, none, b.columns, t.index(self.vectors * t.lanes), write)

    def _tile(
        self, kernels: TextOperand, row: TextOperand, origin: TextOperand, place: TextOperand, start: TextOperand,
        count: TextOperand | None,
    ) -> None:  # fmt: skip
        """All channels and taps of one tile; `count` places of it exist."""
        t, kind = self.t, self.t.vector(self.element)
        offsets = [j * t.lanes for j in range(self.vectors)]
        masks: list[TextOperand | None] = [None] * self.vectors
        if count is not None:
            left = [t.binary("maxsi", t.binary("subi", count, t.index(j)), t.index(0)) for j in offsets]
            masks = [t.mask(n) for n in left]
        cells = [(i, j) for i in range(self.rows) for j in range(self.vectors)]
        kinds = [kind] * len(cells)
        zero = t.constant("0.0", kind)
        base = t.binary("addi", origin, start)
        term, inside, sums = t.carried(t.index(0), TERMS, t.index(1), [zero] * len(cells), kinds)
        at = t.binary("addi", base, self.seen.term(term))
        seen = [load_vector(t, self.seen.memory, [t.add(at, j)], m) for j, m in zip(offsets, masks, strict=True)]
        current = dict(zip(cells, inside, strict=True))
        for i in range(self.rows):
            w = self.w.load(t, [kernels, term, t.index(i)])
            add_products(t, current, w, {(i, j): v for j, v in enumerate(seen)}, self.element)
        t.close([current[c] for c in cells], kinds)
        to = t.binary("addi", place, start)
        for (i, j), v in zip(cells, sums, strict=True):
            self._store(v, t.add(row, i), t.add(to, offsets[j]), masks[j])

    def _store(self, v: TextOperand, line: TextOperand, place: TextOperand, mask: TextOperand | None) -> None:
        v = v if self.after is None else self.after.result(v, line, place, mask)
        store_vector(self.t, v, self.y, [line, place], mask)

"""A stencil of few outputs by a CPU kernel, of the planes that a stride leaves.

Rows of a plane lie one behind the other, so every tap reads at one distance from the result's place,
whatever the number of axes; what is computed between the rows is dropped after. A tile has some
outputs and some vectors of places in registers and goes through taps and channels: nothing that the
taps see is copied, as one product with a matrix needs. A workgroup's places are cut into blocks
whose channels stay in L2 while one tile of outputs after the other passes over them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from iree.compiler import ir

from lstm_ir import ops
from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.shapes import reshape
from lstm_ir.backends.kernels.call.call import KernelCall, ready
from lstm_ir.backends.kernels.call.given import given
from lstm_ir.backends.kernels.cpu import shares
from lstm_ir.backends.kernels.cpu.machine import CHANNEL_BYTES, PLACES, tile_of_places
from lstm_ir.backends.kernels.cpu.register_tile import add_products
from lstm_ir.backends.kernels.cpu.stencil_outputs import OutputStencil, output_stencil
from lstm_ir.backends.kernels.cpu.stencil_places import PlaceStencil, in_spans, place_stencil
from lstm_ir.backends.kernels.text.kernel import Kernel, KernelSignature, called_by_iree
from lstm_ir.backends.kernels.text.memory import Memory, load_vector, put_memories, store_vector
from lstm_ir.backends.kernels.text.statements import Name, TextOperand, argument
from lstm_ir.backends.kernels.text.text import Text, stored_type
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.reach import unreached
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive.planes import Planes
from lstm_ir.ops.primitive.stencil import Taps

# Numbers of the kernel: workgroups, and what they share out: batches times groups, of each blocks of so
# many places, of each tiles of outputs; places, groups, channels and taps; outputs of a group.
GROUPS, OUTER, BLOCK, TILES, PLACE_COUNT, KINDS, CHANNELS, TAPS, OUTPUTS = (
    argument(word) for word in ("groups", "outer", "block", "tiles", "places", "kinds", "channels", "taps", "outputs")
)

# Sizes of the tensors that are products of these.
ALL_TILES, TERMS, ALL_OUTPUTS = (argument(word) for word in ("all_tiles", "terms", "all_outputs"))


def lower_stencil(e: Emitter, n: Node, lhs: ir.Value, rhs: ir.Value, to: TensorType) -> ir.Value | None:
    """A stencil of f32 or f64 and known channels; None where it is products. All have `to`'s dtype."""
    a, b = (v.type.with_dtype(to.dtype) for v in n.inputs)
    packed = e.before_loop.get(n)
    if not takes(e, n, lhs, to) or (packed is None and not e.at_top):
        return None  # in a loop kernels would be packed in every step
    found = panel_stencil(e, n, to)
    if found is not None:
        lines = found.run(lhs, a, found.packed(rhs) if packed is None else packed, to)
        return reshape(e, lines, found.lines(to), to.shape)
    if Taps.of(n.attrs).spacing != (1, 1):
        return None
    seen = parameter("x", a)
    planes = Planes.of(seen, Taps.of(n.attrs), *to.shape[3:])
    (lhs,) = e.graph(Graph("planes", [seen], [planes.value]), [lhs])
    batch, groups, each, count, high, across = planes.value.shape
    height, width = to.shape[3:]
    places = dims.add(dims.mul(dims.add(height, -1), across), width)
    call = Stencil(e, to.dtype, dims.mul(batch, groups), b.shape, places)
    flat = TensorType((dims.product((batch, groups, each)), dims.product((count, high, across))), to.dtype)
    lines = TensorType((dims.product(to.shape[:3]), dims.mul(height, across)), to.dtype)
    x, shifts = reshape(e, lhs, planes.value.type, flat.shape), call.shifts(planes, high, across)
    y = call.run(x, call.packed(rhs) if packed is None else packed, shifts, flat, lines)
    whole = to.with_shape((*to.shape[:4], across))
    y = reshape(e, y, lines, whole.shape)
    if width == across:
        return y
    v = parameter("y", whole)
    cut = ops.slice(v, (0,) * 5, to.shape)
    return e.graph(Graph("rows", [v], [cut]), [y])[0]


def takes(e: Emitter, n: Node, lhs: ir.Value, to: TensorType) -> bool:
    """Whether kernels take its operands: f32 or f64, known channels, no size of 0, with helpers what a call brings."""
    x, w = (v.type for v in n.inputs)
    known = to.dtype in (DType.f32, DType.f64) and w.is_static and 0 not in (*x.shape, *w.shape, *to.shape)
    return known and (not e.options.helpers or given(lhs))


def panel_stencil(e: Emitter, n: Node, to: TensorType) -> OutputStencil | PlaceStencil | None:
    """The call of a kernel that reads panels, of many outputs or of few; None where it is neither."""
    many = output_stencil(e, n, to)
    return place_stencil(e, n, to) if many is None else many


def pack_before(e: Emitter, loop: Loop, consts: list[ir.Value]) -> dict[Node, ir.Value]:
    """What the loop's stencils multiply by, packed before its first step, where its constants decide it."""
    if not e.at_top:
        return {}
    known = unreached(loop.body, loop.varying)
    out: dict[Node, ir.Value] = {}
    for n in loop.body.nodes:
        if n.op.name != "stencil" or (v := n.inputs[1]) not in known:
            continue
        if v.dtype in (DType.f32, DType.f64) and v.type.is_static and 0 not in v.shape:
            (value,) = e.graph(Graph("kernels", loop.const_params, [v]), consts)
            found = panel_stencil(e, n, n.types[0])
            if found is not None:
                out[n] = found.packed(value)
            elif Taps.of(n.attrs).spacing == (1, 1):
                out[n] = Stencil(e, v.dtype, 1, v.shape, 1).packed(value)
    return out


@dataclass
class Stencil(KernelCall):
    """One such call."""

    dtype: DType
    outer: Dim
    kernels: tuple[Dim, ...]  # [G,M,E,K]
    places: Dim
    word: ClassVar[str] = "stencil"

    @property
    def lanes(self) -> int:
        """Places of a vector."""
        assert self.e.target is not None
        return max(1, self.e.target.vector_bits // self.dtype.bits)

    @property
    def tile(self) -> tuple[int, int]:
        """Outputs and vectors of a tile."""
        assert self.e.target is not None
        rows, vectors = tile_of_places(self.e.target, int(self.kernels[1]))  # type: ignore[arg-type]
        if isinstance(self.places, int):
            vectors = min(vectors, -(-self.places // self.lanes))
        return rows, vectors

    @property
    def tiles(self) -> int:
        """Of outputs; the last one begins early where they do not divide."""
        return -(-int(self.kernels[1]) // self.tile[0])  # type: ignore[arg-type]

    def packed(self, rhs: ir.Value) -> ir.Value:
        """[G tiles, K E, rows] of rhs [G,M,E,K]."""
        groups, outputs, each, taps = (int(d) for d in self.kernels)  # type: ignore[arg-type]
        rows, _ = self.tile
        w = parameter("w", TensorType(self.kernels, self.dtype))
        whole = outputs // rows * rows
        tiles = ops.slice(w, (0, 0, 0, 0), (groups, whole, each, taps))
        if whole < outputs:
            tiles = ops.concat([tiles, ops.slice(w, (0, outputs - rows, 0, 0), w.shape)], 1)
        tiles = ops.transpose(ops.reshape(tiles, (groups, self.tiles, rows, each, taps)), (0, 1, 4, 3, 2))
        tiles = ops.reshape(tiles, (groups * self.tiles, taps * each, rows))
        return self.e.graph(Graph("kernels", [w], [tiles]), [rhs])[0]

    def shifts(self, seen: Planes, high: Dim, across: Dim) -> ir.Value:
        """[K]: how far after a result's place each tap reads."""
        known = np.asarray((seen.planes, seen.rows, seen.columns), np.int32)
        if isinstance(high, int) and isinstance(across, int):
            planes, rows, columns = known
            return self.e.constant((planes * high + rows) * across + columns, DType.i32)
        planes, rows, columns = (ops.constant(axis, DType.i32) for axis in known)
        tall, wide = (ops.size(d) if not isinstance(d, int) else ops.constant(d, DType.i32) for d in (high, across))
        return self.e.graph(Graph("shifts", [], [(planes * tall + rows) * wide + columns]), [])[0]

    def run(self, x: ir.Value, w: ir.Value, shifts: ir.Value, flat: TensorType, lines: TensorType) -> ir.Value:
        """The dispatch: lines of planes give lines of results."""
        groups, outputs, each, taps = (int(d) for d in self.kernels)  # type: ignore[arg-type]
        rows, vectors = self.tile
        self.input(ready(x), flat)
        self.input(ready(w), TensorType((groups * self.tiles, taps * each, rows), self.dtype))
        self.input(ready(shifts), TensorType((taps,), DType.i32))
        self.output(lines)
        span = vectors * self.lanes
        block = max(1, min(PLACES, CHANNEL_BYTES // (each * self.dtype.bits // 8)) // span) * span
        text = _StencilText(self.dtype, self.lanes, rows, vectors, *map(self.size, (*flat.shape, lines.shape[1])))
        numbers = [GROUPS, OUTER, BLOCK, TILES, PLACE_COUNT, KINDS, CHANNELS, TAPS, OUTPUTS]
        symbol = self.begin(text.kernel(self.signature(numbers)))
        # Of no rows there would be fewer than none.
        places = self.e.arith("maxsi", self.const(self.places), self.const(0))
        blocks = self.e.arith("ceildivui", places, self.const(block))
        total = shares.groups(self, self.muli(self.muli(self.const(self.outer), blocks), self.const(self.tiles)))
        before, after = (self.outer, block, self.tiles), (groups, each, taps, outputs)
        return self.call(symbol, total, [total, *map(self.const, before), places, *map(self.const, after)])[0]


class _StencilText:
    """The kernel's function: tiles of `rows` outputs and `vectors` vectors of places."""

    def __init__(
        self, dtype: DType, lanes: int, rows: int, vectors: int, lines: Name, length: Name, pitch: Name
    ) -> None:
        self.t = Text(lanes)
        self.rows, self.vectors = rows, vectors
        element = self.element = stored_type(dtype)
        self.x = Memory("%m_x", element, (lines, length))
        self.w = Memory("%m_w", element, (ALL_TILES, TERMS, rows))
        self.shifts = Memory("%m_shifts", "i32", (TAPS,))
        self.y = Memory("%m_y", element, (ALL_OUTPUTS, pitch))

    def kernel(self, taken: KernelSignature) -> Kernel:
        """One function, its memories first."""
        t = self.t
        t.binary("muli", KINDS, TILES, to=ALL_TILES)
        t.binary("muli", TAPS, CHANNELS, to=TERMS)
        t.binary("muli", OUTER, OUTPUTS, to=ALL_OUTPUTS)
        put_memories(t, (*taken.reads, *taken.writes), (self.x, self.w, self.shifts, self.y))
        self._all()
        return Kernel((t.function("", taken, called_by_iree()),))

    def _all(self) -> None:
        """Units of this workgroup: tiles of outputs of a block of one batch and group."""
        t = self.t
        blocks = t.binary("ceildivui", PLACE_COUNT, BLOCK)
        units = t.binary("muli", t.binary("muli", OUTER, blocks), TILES)
        low, high = shares.share(t, units, GROUPS)
        with t.loop(low, high, t.index(1)) as unit:
            tile = t.binary("remui", unit, TILES)
            place = t.binary("divui", unit, TILES)
            outer = t.binary("divui", place, blocks)
            start = t.binary("muli", t.binary("remui", place, blocks), BLOCK)
            end = t.binary("minui", t.binary("addi", start, BLOCK), PLACE_COUNT)
            self._block(outer, tile, start, end)

    def _block(self, outer: TextOperand, tile: TextOperand, start: TextOperand, end: TextOperand) -> None:
        """One tile of outputs over a block; the last vectors begin early, and few have masks."""
        t = self.t
        kind = t.binary("remui", outer, KINDS)
        kernels = t.binary("addi", t.binary("muli", kind, TILES), tile)
        last = t.binary("subi", OUTPUTS, t.index(self.rows))
        row = t.binary("minui", t.binary("muli", tile, t.index(self.rows)), last)
        row = t.binary("addi", t.binary("muli", outer, OUTPUTS), row)
        line = t.binary("muli", outer, CHANNELS)
        in_spans(t, start, end, t.index(self.vectors * t.lanes), partial(self._tile, kernels, row, line))

    def _tile(
        self, kernels: TextOperand, row: TextOperand, line: TextOperand, place: TextOperand, count: TextOperand | None
    ) -> None:
        """All taps and channels of one tile; `count` places of it exist."""
        t, kind = self.t, self.t.vector(self.element)
        offsets = [j * t.lanes for j in range(self.vectors)]
        masks: list[TextOperand | None] = [None] * self.vectors
        if count is not None:
            masks = [t.mask(t.binary("subi", count, t.index(j))) for j in offsets]
        cells = [(i, j) for i in range(self.rows) for j in range(self.vectors)]
        kinds = [kind] * len(cells)
        zero = t.constant("0.0", kind)
        k, before, sums = t.carried(t.index(0), TAPS, t.index(1), [zero] * len(cells), kinds)
        shift = t.op("arith.index_cast {} : i32 to index", self.shifts.load(t, [k]))
        base = t.binary("addi", place, shift)
        term = t.binary("muli", k, CHANNELS)
        places = [t.add(base, j) for j in offsets]
        channel, inside, after = t.carried(t.index(0), CHANNELS, t.index(1), before, kinds)
        here = t.binary("addi", line, channel)
        seen = [load_vector(t, self.x, [here, p], m) for p, m in zip(places, masks, strict=True)]
        at = t.binary("addi", term, channel)
        current = dict(zip(cells, inside, strict=True))
        for i in range(self.rows):
            w = self.w.load(t, [kernels, at, t.index(i)])
            add_products(t, current, w, {(i, j): v for j, v in enumerate(seen)}, self.element)
        t.close([current[c] for c in cells], kinds)
        t.close(after, kinds)
        results = [t.add(row, i) for i in range(self.rows)]
        to = [t.add(place, j) for j in offsets]
        for (i, j), v in zip(cells, sums, strict=True):
            store_vector(t, v, self.y, [results[i], to[j]], masks[j])

"""A sum of outer products by a CPU kernel: [K, M] and [K, N] give [M, N], as weight gradients are; each of the three
may be several axes.

IREE's own product transposes and packs both sides in memory, which for so long a sum costs as much
as the sum. Here a workgroup has some rows of the result and goes through the sum block by block. It
packs its columns of the first operand, which then stay in L2, and after that one panel of columns
of the second after the other, each of which stays in L1 while tiles of the result in registers pass
over it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.shapes import reshape, transpose
from lstm_ir.backends.kernels.body.shifted import without_edge
from lstm_ir.backends.kernels.call.call import KernelCall, ready
from lstm_ir.backends.kernels.call.given import given
from lstm_ir.backends.kernels.cpu import shares
from lstm_ir.backends.kernels.cpu.machine import NARROW, PANEL, SMALL_SUM, SUM, TERMS, TRANSPOSED, WIDE, WORTH, machine
from lstm_ir.backends.kernels.cpu.register_tile import add_products
from lstm_ir.backends.kernels.text.kernel import Kernel, KernelSignature, called_by_iree
from lstm_ir.backends.kernels.text.memory import Memory, load_vector, on_stack, put_memories, store_vector
from lstm_ir.backends.kernels.text.statements import TextOperand, argument
from lstm_ir.backends.kernels.text.text import Text, stored_type
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive.linear import free_axes

# Numbers of the kernel: rows of an operand that come before the first term; sizes of the result; the
# column at which narrow tiles begin.
GROUPS, FIRST, SECOND, ROWS, COLUMNS, MIDDLE = (
    argument(word) for word in ("groups", "first", "second", "rows", "columns", "middle")
)
TILES = argument("tiles")


def lower_outer_sum(e: Emitter, n: Node, lhs: ir.Value, rhs: ir.Value) -> ir.Value | None:
    """dot_general without batches whose sum is long; None where IREE's own does as well.

    Summed axes of an operand that do not lead are brought there, which pays where the other operand is wide.
    """
    operands, at, to = [v.type for v in n.inputs], n.attrs, n.types[0]
    pairs = sorted(zip(at["lhs_contracting_dimensions"], at["rhs_contracting_dimensions"], strict=True))
    if not e.at_top or at["lhs_batching_dimensions"] or not pairs or to.dtype not in (DType.f32, DType.f64):
        return None
    summed = [tuple(axes) for axes in zip(*pairs, strict=True)]
    free = [free_axes(t.rank, (), axes) for t, axes in zip(operands, summed, strict=True)]
    rows, columns = (dims.product(tuple(t.shape[i] for i in axes)) for t, axes in zip(operands, free, strict=True))
    terms = dims.product(tuple(operands[0].shape[i] for i in summed[0]))
    if not isinstance(rows, int) or not isinstance(columns, int) or any(t.dtype is not to.dtype for t in operands):
        return None
    if rows * columns < SMALL_SUM or (isinstance(terms, int) and terms * rows * columns < WORTH):
        return None
    lead = [axes == tuple(range(len(axes))) for axes in summed]
    if not all(lead) and min(rows, columns) < TRANSPOSED:
        return None
    if e.options.helpers and not (given(lhs) or given(rhs)):
        return None  # what publishes its work runs in every call
    found = without_edge(n.inputs[1]) if all(lead) and len(free[1]) == 1 else None
    if found is not None and found[0].rows in e.known:
        shift, skip = found
        call = OuterSum(e, terms, rows, columns, to.dtype, skip, shift.later)
        taken = ((lhs, operands[0]), (e.known[shift.rows], shift.rows.type))
    else:
        call = OuterSum(e, terms, rows, columns, to.dtype)
        first, second = (
            (v, t) if ahead else transpose(e, v, t, (*axes, *others))
            for v, t, ahead, axes, others in zip((lhs, rhs), operands, lead, summed, free, strict=True)
        )
        taken = first, second
    flat = [reshape(e, v, t, (terms, width)) for (v, t), width in zip(taken, (rows, columns), strict=True)]
    return reshape(e, call.run(*flat), TensorType((rows, columns), to.dtype), to.shape)


@dataclass
class OuterSum(KernelCall):
    """One such call."""

    terms: Dim
    rows: int
    columns: int
    dtype: DType
    skip: Dim = 0  # terms that one operand is off: those at the edge are zero
    later: bool = False  # term k takes row k - skip of the second operand; else the first is off

    def run(self, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
        """The dispatch."""
        assert self.e.target is not None
        self.input(ready(lhs), TensorType((self.terms, self.rows), self.dtype))
        self.input(ready(rhs), TensorType((self.terms, self.columns), self.dtype))
        self.output(TensorType((self.rows, self.columns), self.dtype))
        target = self.e.target
        height, sums = form(target, self.dtype)
        tiles = -(-self.rows // height)
        self.output(TensorType((tiles, sums, height), self.dtype))
        lanes = max(1, target.vector_bits // self.dtype.bits)
        # Numbers, not text: all weight gradients of a model are one kernel, if their columns are whole
        # vectors.
        off = (self.skip, 0) if self.later else (0, self.skip)
        numbers = [*off, self.rows, self.columns, wide_columns(self.columns, lanes)]
        text = _OuterSumText(
            target, self.dtype, self.size(self.terms),
            uneven=self.rows % height != 0,
            ragged=self.columns % lanes != 0 or self.columns < NARROW * lanes,
        )  # fmt: skip
        taken = self.signature([GROUPS, FIRST, SECOND, ROWS, COLUMNS, MIDDLE])
        symbol = self.begin(text.kernel(taken))
        groups = shares.groups(self, self.const(tiles))
        return self.call(symbol, groups, [groups, *map(self.const, numbers)])[0]


def wide_columns(columns: int, lanes: int) -> int:
    """Columns in wide tiles: what they leave is whole narrow ones, or ends in one."""
    vectors = -(-columns // lanes)
    wide = vectors // WIDE
    if columns % lanes and vectors % WIDE == 0:
        wide -= 1  # the last vector is in a narrow tile, which has masks
    while wide > 0 and (vectors - wide * WIDE) % NARROW:
        wide -= 1
    return max(0, wide) * WIDE * lanes


def form(target: TargetInfo, dtype: DType) -> tuple[int, int]:
    """Rows of a tile, terms of a block."""
    lanes = max(1, target.vector_bits // dtype.bits)
    most = PANEL // (WIDE * lanes * dtype.bits // 8)
    return machine(target).outer, min(SUM, most // TERMS * TERMS)


class _Ahead(NamedTuple):
    """What comes next: the block's first term, the column of the next panel, numbers of this tile and panel."""

    start: TextOperand
    column: TextOperand
    tile: TextOperand
    panel: TextOperand


class _OuterSumText:
    """The kernel's function: tiles of `height` rows and up to WIDE vectors of columns.

    uneven: the last tile has fewer rows; ragged: narrow tiles may have columns past the last one.
    """

    def __init__(self, target: TargetInfo, dtype: DType, terms: TextOperand, *, uneven: bool, ragged: bool) -> None:
        self.t = Text(max(1, target.vector_bits // dtype.bits))
        self.height, self.sums = form(target, dtype)
        self.terms, self.uneven, self.ragged = terms, uneven, ragged
        element = self.element = stored_type(dtype)
        self.a = Memory("%m_a", element, (terms, ROWS))
        self.b = Memory("%m_b", element, (terms, COLUMNS))
        self.out = Memory("%m_out", element, (ROWS, COLUMNS))
        self.packed = Memory("%m_packed", element, (TILES, self.sums, self.height))

    def kernel(self, taken: KernelSignature) -> Kernel:
        """One function, its memories first."""
        t = self.t
        t.binary("ceildivui", ROWS, t.index(self.height), to=TILES)
        put_memories(t, (*taken.reads, *taken.writes), (self.a, self.b, self.out, self.packed))
        self._all()
        return Kernel((t.function("", taken, called_by_iree()),))

    def _all(self) -> None:
        t, height = self.t, self.height
        group = t.workgroup()
        each = t.binary("muli", t.binary("ceildivui", TILES, GROUPS), t.index(height))
        low = t.binary("minui", t.binary("muli", group, each), ROWS)
        high = t.binary("minui", t.binary("addi", low, each), ROWS)
        self._clear(low, high)
        terms = t.binary("subi", self.terms, t.binary("addi", FIRST, SECOND))
        panel = on_stack(t, self.element, (self.sums, WIDE * t.lanes))
        with t.loop(t.index(0), terms, t.index(self.sums)) as start:
            left = t.binary("subi", terms, start)
            count = t.binary("minui", left, t.index(self.sums))
            whole = t.binary("ceildivui", count, t.index(TERMS))
            whole = t.binary("muli", whole, t.index(TERMS))
            self._pack_rows(start, count, whole, low, high)
            self._panels(panel, start, count, whole, low, high)

    def _clear(self, low: TextOperand, high: TextOperand) -> None:
        t = self.t
        zero = t.constant("0.0", t.vector(self.element))
        with t.loop(low, high, t.index(1)) as row:
            with t.loop(t.index(0), COLUMNS, t.index(t.lanes)) as column:
                mask = self._mask(column) if self.ragged else None
                store_vector(t, zero, self.out, [row, column], mask)

    def _mask(self, column: TextOperand) -> TextOperand:
        t = self.t
        left = t.binary("subi", COLUMNS, column)
        return t.mask(left)

    def _pack_rows(
        self, start: TextOperand, count: TextOperand, whole: TextOperand, low: TextOperand, high: TextOperand
    ) -> None:
        """A block of the first operand's columns low .. high, tile by tile; none is zero.

        A few terms of all tiles, then the next ones: lines that hold several tiles stay in L1.
        """
        t, height = self.t, self.height
        zero = t.constant("0.0", t.vector(self.element, height))
        start = t.binary("addi", start, FIRST)
        few = t.index(2 * TERMS)
        with t.loop(t.index(0), whole, few) as first:
            end = t.binary("minui", t.binary("addi", first, few), count)
            with t.loop(low, high, t.index(height)) as row:
                mask = None
                if self.uneven:
                    left = t.binary("subi", ROWS, row)
                    mask = t.mask(left, height)
                tile = t.binary("divui", row, t.index(height))
                with t.loop(first, end, t.index(1)) as k:
                    where = [t.binary("addi", start, k), row]
                    v = load_vector(t, self.a, where, mask, height)
                    self._keep(v, tile, k)
        with t.loop(low, high, t.index(height)) as row:
            tile = t.binary("divui", row, t.index(height))
            with t.loop(count, whole, t.index(1)) as k:
                self._keep(zero, tile, k)

    def _keep(self, v: TextOperand, tile: TextOperand, k: TextOperand) -> None:
        store_vector(self.t, v, self.packed, [tile, k, self.t.index(0)], lanes=self.height)

    def _panels(
        self,
        panel: Memory,
        start: TextOperand,
        count: TextOperand,
        whole: TextOperand,
        low: TextOperand,
        high: TextOperand,
    ) -> None:
        t = self.t
        for first, end, vectors in ((t.index(0), MIDDLE, WIDE), (MIDDLE, COLUMNS, NARROW)):
            with t.loop(first, end, t.index(vectors * t.lanes)) as column:
                places = [t.add(column, j * t.lanes) for j in range(vectors)]
                masks: list[TextOperand | None] = [None] * vectors
                if self.ragged and vectors == NARROW:
                    masks = [self._mask(place) for place in places]
                self._pack_panel(panel, start, count, whole, places, masks)
                number = t.binary("divui", column, t.index(vectors * t.lanes))
                with t.loop(low, high, t.index(self.height)) as row:
                    tile = t.binary("divui", t.binary("subi", row, low), t.index(self.height))
                    ahead = _Ahead(start, t.add(column, vectors * t.lanes), tile, number)
                    self._tile(panel, whole, row, places, masks, ahead)

    def _pack_panel(
        self, panel: Memory, start: TextOperand, count: TextOperand, whole: TextOperand, places: list[TextOperand],
        masks: list[TextOperand | None],
    ) -> None:  # fmt: skip
        """A block of some columns of the second operand; none is zero."""
        t = self.t
        zero = t.constant("0.0", t.vector(self.element))
        start = t.binary("addi", start, SECOND)
        with t.loop(t.index(0), count, t.index(1)) as k:
            at = t.binary("addi", start, k)
            for j, (place, mask) in enumerate(zip(places, masks, strict=True)):
                v = load_vector(t, self.b, [at, place], mask)
                store_vector(t, v, panel, [k, t.index(j * t.lanes)])
        with t.loop(count, whole, t.index(1)) as k:
            for j in range(len(places)):
                store_vector(t, zero, panel, [k, t.index(j * t.lanes)])

    def _tile(
        self,
        panel: Memory,
        whole: TextOperand,
        row: TextOperand,
        places: list[TextOperand],
        masks: list[TextOperand | None],
        ahead: _Ahead,
    ) -> None:
        """One tile of the result, over one block of the sum."""
        t, kind = self.t, self.t.vector(self.element)
        rows = [t.add(row, i) for i in range(self.height)]
        cells = [(i, j) for i in range(self.height) for j in range(len(places))]
        guards = self._guards(rows, masks)
        first = [load_vector(t, self.out, [rows[i], places[j]], guards[i, j]) for i, j in cells]
        kinds = [kind] * len(cells)
        tile = t.binary("divui", row, t.index(self.height))
        at, sums, out = t.carried(t.index(0), whole, t.index(TERMS), first, kinds)
        current = dict(zip(cells, sums, strict=True))
        self._ask(ahead, at, row, len(places))
        for u in range(TERMS):
            k = t.add(at, u)
            right = [load_vector(t, panel, [k, t.index(j * t.lanes)]) for j in range(len(places))]
            for i in range(self.height):
                one = self.packed.load(t, [tile, k, t.index(i)])
                add_products(t, current, one, {(i, j): v for j, v in enumerate(right)}, self.element)
        t.close([current[c] for c in cells], kinds)
        for (i, j), v in zip(cells, out, strict=True):
            store_vector(t, v, self.out, [rows[i], places[j]], guards[i, j])

    def _ask(self, ahead: _Ahead, at: TextOperand, row: TextOperand, vectors: int) -> None:
        """Asks for a term of the next panel, of the next block one of this tile's rows: as many tiles or panels as an
        iteration has terms ask for all of them."""
        t = self.t
        k, column = t.binary("remui", ahead.tile, t.index(TERMS)), ahead.column
        k = t.binary("addi", ahead.start, t.binary("addi", at, k))
        where = [(self.b, t.binary("addi", k, SECOND), t.add(column, j * t.lanes)) for j in range(vectors)]
        k = t.binary("remui", ahead.panel, t.index(TERMS))
        k = t.binary("addi", ahead.start, t.add(t.binary("addi", at, k), self.sums))
        where.append((self.a, t.binary("addi", k, FIRST), row))
        for m, term, place in where:
            t.line("memref.prefetch {}[{}], read, locality<2>, data : {}", m.ref, [term, place], m.kind)

    def _guards(
        self, rows: list[TextOperand], masks: list[TextOperand | None]
    ) -> dict[tuple[int, int], TextOperand | None]:
        """Which lanes of which row exist."""
        t = self.t
        if not self.uneven:
            return {(i, j): m for i in range(len(rows)) for j, m in enumerate(masks)}
        out: dict[tuple[int, int], TextOperand | None] = {}
        bits = t.vector("i1")
        none, every = t.constant("false", bits), t.constant("true", bits)
        for i, row in enumerate(rows):
            here = t.compare("ult", row, ROWS)
            for j, m in enumerate(masks):
                out[i, j] = t.op("arith.select {}, {}, {} : {}", here, every if m is None else m, none, bits)
        return out

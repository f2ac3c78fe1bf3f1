"""A batched product by a CPU kernel: of each batch a matrix by another one, wherever their axes lie.

IREE's own packs both sides of every batch, turns what does not lie as it wants it, and is compiled anew for every
shape. Here sizes and strides are numbers, so all batched products of a module are one kernel, or two. A workgroup has
some rows of some batches. It puts a panel of the second operand's columns on the stack, over which tiles of the result
pass in registers; the first operand is read where it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.shapes import reshape, transpose
from lstm_ir.backends.kernels.call.call import KernelCall, ready
from lstm_ir.backends.kernels.call.given import given
from lstm_ir.backends.kernels.cpu import shares
from lstm_ir.backends.kernels.cpu.machine import BATCH_AXES, BATCH_COLUMNS, BATCH_ROWS, PANEL, batch_tiles
from lstm_ir.backends.kernels.cpu.register_tile import add_products
from lstm_ir.backends.kernels.cpu.squares import turned
from lstm_ir.backends.kernels.text.kernel import Kernel, KernelSignature, called_by_iree
from lstm_ir.backends.kernels.text.memory import Memory, load_vector, on_stack, put_memories, store_vector
from lstm_ir.backends.kernels.text.statements import Name, TextOperand, argument
from lstm_ir.backends.kernels.text.text import Text, stored_type
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import DType, Shape, TensorType
from lstm_ir.ops.primitive.linear import free_axes


class Axis(NamedTuple):
    """Axes of an operand that are counted as one: elements, and from one to the next in memory."""

    size: Dim
    stride: Dim


class Layout(NamedTuple):
    """Where the elements of an operand lie."""

    batches: tuple[Axis, ...]
    free: Axis
    summed: Axis


class Strides(NamedTuple):
    """From one batch of the result to the next in memory, for each batch axis, and from one row to the next."""

    batches: tuple[Dim, ...]
    row: Dim


def lower_batched_product(e: Emitter, n: Node, lhs: ir.Value, rhs: ir.Value) -> ir.Value | None:
    """dot_general with batches; None for few columns, for axes that cannot be counted as one, and in loops."""
    (a, b), to, at = (v.type for v in n.inputs), n.types[0], n.attrs
    if not e.at_top or to.dtype not in (DType.f32, DType.f64) or {a.dtype, b.dtype} != {to.dtype}:
        return None
    if not 0 < len(at["lhs_batching_dimensions"]) <= BATCH_AXES or 0 in (*a.shape, *b.shape):
        return None
    if e.options.helpers and not (given(lhs) or given(rhs)):
        return None  # what publishes its work runs in every call
    pairs = sorted(zip(at["lhs_contracting_dimensions"], at["rhs_contracting_dimensions"], strict=True))
    first = layout(a.shape, at["lhs_batching_dimensions"], tuple(i for i, _ in pairs))
    second = layout(b.shape, at["rhs_batching_dimensions"], tuple(i for _, i in pairs))
    if first is None or second is None or 1 not in (second.free.stride, second.summed.stride):
        return None
    if first.free.size == 1 or (isinstance(second.free.size, int) and second.free.size < BATCH_COLUMNS):
        return None
    flat = [reshape(e, v, t, (dims.product(t.shape),)) for v, t in ((lhs, a), (rhs, b))]
    ends = (
        len(first.batches),
        to.rank - len(free_axes(b.rank, at["rhs_batching_dimensions"], tuple(i for _, i in pairs))),
    )
    turned, out = _result(e, n, *ends)
    call = BatchedProduct(e, first, second, out, to.dtype)
    made = reshape(e, call.run(*flat), TensorType((call.elements,), to.dtype), turned.types[0].shape)
    if turned is n:
        return made
    e.known[turned.values[0]] = made
    order = turned.attrs["permutation"]
    return transpose(e, made, turned.types[0], tuple(order.index(i) for i in range(to.rank)))[0]  # nothing reads it


def _result(e: Emitter, n: Node, batches: int, columns: int) -> tuple[Node, Strides]:
    """What the kernel writes: the product, whose columns begin at axis `columns`, or what a transposition that alone
    reads it makes of it, if columns stay together; and the strides of its axes there."""
    readers = () if e.within is None else e.within.users.get(n.values[0], ())
    alone = len(readers) == 1 and e.within is not None and n.values[0] not in e.within.outputs
    for m in (*(u for u in readers if alone and u.op.name == "transpose"), n):
        order = m.attrs["permutation"] if m is not n else tuple(range(n.types[0].rank))
        steps = _strides(m.types[0].shape)
        here = [steps[order.index(i)] for i in range(len(order))]  # of the product's axes
        rows = _joined(n.types[0].shape, here, range(batches, columns))
        across = _joined(n.types[0].shape, here, range(columns, len(order)))
        if rows is not None and across is not None and across.stride == 1:
            return m, Strides(tuple(here[:batches]), rows.stride)
    raise AssertionError("the axes of a product lie one behind the other")


def _strides(shape: Shape) -> list[Dim]:
    return [dims.product(shape[i + 1 :]) for i in range(len(shape))]


def _joined(shape: Shape, strides: Sequence[Dim], axes: Sequence[int]) -> Axis | None:
    """Axes counted as one; None where they are no neighbours."""
    if any(strides[i] != dims.mul(shape[j], strides[j]) for i, j in pairwise(axes)):
        return None
    return Axis(dims.product(tuple(shape[i] for i in axes)), strides[axes[-1]] if axes else 1)


def layout(shape: Shape, batching: tuple[int, ...], summed: tuple[int, ...]) -> Layout | None:
    """None where free or summed axes are no neighbours."""
    strides = _strides(shape)
    free, terms = (_joined(shape, strides, axes) for axes in (free_axes(len(shape), batching, summed), summed))
    if free is None or terms is None:
        return None
    return Layout(tuple(Axis(shape[i], strides[i]) for i in batching), free, terms)


# Numbers of the kernel: elements of the operands and the result; batches, rows, columns and terms of a batch; from one
# to the next.
GROUPS, LHS, RHS, OUT = (argument(word) for word in ("groups", "lhs", "rhs", "elements"))
BATCHES, ROWS, COLUMNS, TERMS = (argument(word) for word in ("batches", "rows", "columns", "terms"))
ROW, TERM, OTHER, RESULT = argument("row"), argument("term"), argument("other"), argument("result")


def _batch(axis: int) -> tuple[Name, Name, Name, Name]:
    """Of a batch axis: its size, the strides of both operands and of the result."""
    return argument(f"batch{axis}"), argument(f"lhs{axis}"), argument(f"rhs{axis}"), argument(f"out{axis}")


@dataclass
class BatchedProduct(KernelCall):
    """One such call."""

    first: Layout
    second: Layout
    out: Strides
    dtype: DType

    @property
    def batches(self) -> Dim:
        """Of all batch axes."""
        return dims.product(tuple(axis.size for axis in self.first.batches))

    @property
    def elements(self) -> Dim:
        """Of the result."""
        return dims.product((self.batches, self.first.free.size, self.second.free.size))

    def run(self, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
        """The dispatch."""
        assert self.e.target is not None
        across = self.second.free.stride == 1  # columns are neighbours in memory; else terms are
        numbers: dict[Name, Dim] = {
            BATCHES: self.batches, ROWS: self.first.free.size, COLUMNS: self.second.free.size,
            TERMS: self.first.summed.size, ROW: self.first.free.stride, TERM: self.first.summed.stride,
            OTHER: self.second.summed.stride if across else self.second.free.stride, OUT: self.elements,
            RESULT: self.out.row,
        }  # fmt: skip
        for size, operand, v in ((LHS, self.first, lhs), (RHS, self.second, rhs)):
            axes = (*operand.batches, operand.free, operand.summed)
            numbers[size] = dims.product(tuple(axis.size for axis in axes))
            self.input(ready(v), TensorType((numbers[size],), self.dtype))
        for i, (one, other, to) in enumerate(
            zip(self.first.batches, self.second.batches, self.out.batches, strict=True)
        ):
            numbers |= dict(zip(_batch(i), (one.size, one.stride, other.stride, to), strict=True))
        self.output(TensorType((self.elements,), self.dtype))
        text = _BatchedText(self.e.target, self.dtype, len(self.first.batches), across)
        symbol = self.begin(text.kernel(self.signature([*numbers, GROUPS])))
        parts = self.e.arith("ceildivui", self.const(self.first.free.size), self.const(BATCH_ROWS))
        groups = shares.groups(self, self.muli(self.const(self.batches), parts))
        return self.call(symbol, groups, [*map(self.const, numbers.values()), groups])[0]


class _Batch(NamedTuple):
    """Where a batch begins, in each memory."""

    lhs: TextOperand
    rhs: TextOperand
    out: TextOperand


class _PanelTerms(NamedTuple):
    """Terms start .. start + length of some columns of the second operand, and where they are put."""

    memory: Memory
    start: TextOperand
    length: TextOperand


class _ColumnPanel(NamedTuple):
    """Those of so many vectors of columns."""

    terms: _PanelTerms
    column: TextOperand
    vectors: int


class _BatchedText:
    """The kernel's function."""

    def __init__(self, target: TargetInfo, dtype: DType, axes: int, across: bool) -> None:
        self.t, self.axes, self.across = Text(max(1, target.vector_bits // dtype.bits)), axes, across
        self.tiles = batch_tiles(target)
        element = self.element = stored_type(dtype)
        self.lhs, self.rhs = Memory("%m_lhs", element, (LHS,)), Memory("%m_rhs", element, (RHS,))
        self.out = Memory("%m_out", element, (OUT,))
        self.terms = PANEL // (next(iter(self.tiles)) * self.t.lanes * dtype.bits // 8)  # of a panel

    def kernel(self, taken: KernelSignature) -> Kernel:
        """One function."""
        t = self.t
        put_memories(t, (*taken.reads, *taken.writes), (self.lhs, self.rhs, self.out))
        self._all()
        return Kernel((t.function("", taken, called_by_iree()),))

    def _all(self) -> None:
        t = self.t
        parts = t.binary("ceildivui", ROWS, t.index(BATCH_ROWS))
        low, high = shares.share(t, t.binary("muli", BATCHES, parts), GROUPS)
        memory = on_stack(t, self.element, (self.terms, next(iter(self.tiles)) * t.lanes))
        some = t.binary("maxui", TERMS, t.index(1))  # of no terms the sums are zeros
        with t.loop(low, high, t.index(1)) as unit:
            batch = self._batch(t.binary("divui", unit, parts))
            first = t.binary("muli", t.binary("remui", unit, parts), t.index(BATCH_ROWS))
            end = t.binary("minui", t.add(first, BATCH_ROWS), ROWS)
            with t.loop(t.index(0), some, t.index(self.terms)) as start:
                count = t.binary("minui", t.binary("subi", TERMS, start), t.index(self.terms))
                widest = next(iter(self.tiles)) * t.lanes
                with t.loop(t.index(0), COLUMNS, t.index(widest)) as column:
                    self._columns(batch, (first, end), _PanelTerms(memory, start, count), column)

    def _batch(self, number: TextOperand) -> _Batch:
        t = self.t
        begin: list[TextOperand] = [t.index(0)] * 3
        for axis in reversed(range(self.axes)):
            size, *strides = _batch(axis)
            at = t.binary("remui", number, size) if axis else number
            number = t.binary("divui", number, size) if axis else number
            begin = [t.binary("addi", b, t.binary("muli", at, s)) for b, s in zip(begin, strides, strict=True)]
        return _Batch(*begin)

    def _columns(
        self, batch: _Batch, rows: tuple[TextOperand, TextOperand], terms: _PanelTerms, column: TextOperand
    ) -> None:
        """A panel of as many vectors as are left, and its tiles."""
        t, widths = self.t, list(self.tiles)
        left = t.binary("subi", COLUMNS, column)
        width: TextOperand = t.index(widths[-1])
        for vectors, fewer in zip(reversed(widths[:-1]), reversed(widths[1:]), strict=True):
            width = t.select(t.compare("ugt", left, t.index(fewer * t.lanes)), t.index(vectors), width)
        with t.loop(t.index(0), width, t.index(1)) as j:
            place = t.binary("muli", j, t.index(t.lanes))
            first = t.binary("addi", column, place)
            (self._across if self.across else self._along)(terms, batch, first, place)
        for vectors in widths:
            with t.when(t.compare("eq", width, t.index(vectors))):
                panel = _ColumnPanel(terms, column, vectors)
                at, end = rows
                for height in self.tiles[vectors]:
                    n = t.index(height)
                    whole = t.binary("muli", t.binary("divui", t.binary("subi", end, at), n), n)
                    stop = t.binary("addi", at, whole)
                    with t.loop(at, stop, n) as row:
                        self._tile(panel, batch, row, height)
                    at = stop

    def _mask(self, first: TextOperand) -> TextOperand:
        """The columns from `first` on that there are."""
        t = self.t
        return t.mask(t.binary("maxsi", t.binary("subi", COLUMNS, first), t.index(0)))

    def _across(self, terms: _PanelTerms, batch: _Batch, first: TextOperand, place: TextOperand) -> None:
        """A vector of each term, whose columns lie side by side."""
        t, mask = self.t, self._mask(first)
        with t.loop(t.index(0), terms.length, t.index(1)) as k:
            at = t.binary("muli", t.binary("addi", terms.start, k), OTHER)
            v = load_vector(t, self.rhs, [t.binary("addi", t.binary("addi", batch.rhs, at), first)], mask)
            store_vector(t, v, terms.memory, [k, place])

    def _along(self, terms: _PanelTerms, batch: _Batch, first: TextOperand, place: TextOperand) -> None:
        """The same where terms lie side by side: squares are turned, the last one over those before; of fewer terms one
        by one. Past the last column the last one stands again."""
        t, memory, count = self.t, terms.memory, terms.length
        last, columns = t.binary("subi", COLUMNS, t.index(1)), []
        for lane in range(t.lanes):
            column = t.binary("minui", t.add(first, lane), last)
            at = t.binary("addi", t.binary("muli", column, OTHER), terms.start)
            columns.append(t.binary("addi", batch.rhs, at))
        enough = t.compare("uge", count, t.index(t.lanes))
        with t.when(enough):
            end = t.binary("subi", count, t.index(t.lanes))
            with t.loop(t.index(0), count, t.index(t.lanes)) as k:
                k = t.binary("minui", k, end)
                square = [load_vector(t, self.rhs, [t.binary("addi", c, k)]) for c in columns]
                for i, v in enumerate(turned(t, self.element, square)):
                    store_vector(t, v, memory, [t.add(k, i), place])
        with t.when(t.opposite(enough)), t.loop(t.index(0), count, t.index(1)) as k:
            for lane, c in enumerate(columns):
                one = self.rhs.load(t, [t.binary("addi", c, k)])
                memory.store(t, one, [k, t.add(place, lane)])

    def _tile(self, panel: _ColumnPanel, batch: _Batch, row: TextOperand, height: int) -> None:
        """Rows of the result in a panel's columns: its terms are added to those of the panels before."""
        t, kind = self.t, self.t.vector(self.element)
        cells = [(i, j) for i in range(height) for j in range(panel.vectors)]
        zero = t.constant("0.0", kind)
        masks = [self._mask(t.add(panel.column, j * t.lanes)) for j in range(panel.vectors)]
        lines: list[TextOperand] = []
        places: dict[tuple[int, int], TextOperand] = {}
        for i in range(height):
            at = t.binary("addi", t.binary("muli", t.add(row, i), ROW), t.binary("muli", panel.terms.start, TERM))
            lines.append(t.binary("addi", batch.lhs, at))
            at = t.binary("addi", t.binary("muli", t.add(row, i), RESULT), panel.column)
            places |= {(i, j): t.add(t.binary("addi", batch.out, at), j * t.lanes) for j in range(panel.vectors)}
        begins = t.compare("eq", panel.terms.start, t.index(0))
        before = {c: load_vector(t, self.out, [places[c]], masks[c[1]]) for c in cells}
        init = [t.select(begins, zero, before[c], kind) for c in cells]
        k, inside, out = t.carried(t.index(0), panel.terms.length, t.index(1), init, [kind] * len(cells))
        current = dict(zip(cells, inside, strict=True))
        right = [load_vector(t, panel.terms.memory, [k, t.index(j * t.lanes)]) for j in range(panel.vectors)]
        term = t.binary("muli", k, TERM)
        for i, line in enumerate(lines):
            one = self.lhs.load(t, [t.binary("addi", line, term)])
            add_products(t, current, one, {(i, j): v for j, v in enumerate(right)}, self.element)
        t.close([current[c] for c in cells], [kind] * len(cells))
        for c, v in zip(cells, out, strict=True):
            store_vector(t, v, self.out, [places[c]], masks[c[1]])

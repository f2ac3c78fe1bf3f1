"""Packing of weights that a call is given, by a kernel: as `packing` does, in one dispatch.

IREE cuts every gate out of its matrix, puts the gates behind each other and turns the result, by
kernels that differ with every size. Here sizes and strides are numbers, and all packings of a module
whose matrices lie alike share one kernel. Weights that are known when a module is loaded are left to
IREE, which packs them then, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.kernels.body.atoms import Matrix
from lstm_ir.backends.kernels.body.plan import KLoop
from lstm_ir.backends.kernels.call.call import KernelCall, ready
from lstm_ir.backends.kernels.call.given import given
from lstm_ir.backends.kernels.call.packing import PackedForm, packed_type, runs_of
from lstm_ir.backends.kernels.cpu import shares
from lstm_ir.backends.kernels.cpu.machine import PACKED_NUMBERS
from lstm_ir.backends.kernels.cpu.squares import turned
from lstm_ir.backends.kernels.text.kernel import Kernel, KernelSignature, called_by_iree
from lstm_ir.backends.kernels.text.memory import Memory, load_vector, put_memories, store_vector
from lstm_ir.backends.kernels.text.statements import Name, TextOperand, argument
from lstm_ir.backends.kernels.text.text import Text, stored_type
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType, TensorType


class MatrixColumns(NamedTuple):
    """Columns of one matrix, for each gate: the element of column c and k is at[gate] + ..."""

    value: Value
    at: tuple[int, ...]  # first element of each gate
    stride: int  # from one k to the next where `wide`, else from one column to the next
    wide: bool  # columns are neighbours in memory; else the k of a column are
    length: int  # of k


def pack_given(
    e: Emitter, loops: Sequence[KLoop], known: Mapping[Value, ir.Value], form: PackedForm
) -> ir.Value | None:
    """The packed weights of some passes, as `pack` gives them; None where that does as well."""
    t = packed_type(loops, form)
    if not e.has_cpu_kernels or t.dtype not in (DType.f32, DType.f64):
        return None
    if not e.once:
        return None  # it would be packed again in every step
    pieces = [_piece(matrices, length) for matrices, length in runs_of(loops)]
    found = [p for p in pieces if p is not None]
    if len(found) < len(pieces) or not any(given(known[p.value]) for p in found):
        return None
    gates = len(loops[0].gates)
    if 4 + len(found) * (3 + gates) > PACKED_NUMBERS:
        return None
    return Packing(e, found, form, gates).run(known, t)


def _piece(matrices: list[Matrix], length: int) -> MatrixColumns | None:
    """None for gates of several tensors, and for open sizes."""
    first = matrices[0]
    shape = first.value.shape
    if any(m.value is not first.value for m in matrices):
        return None
    if not all(isinstance(d, int) for d in shape):
        return None
    strides = [1]
    for d in reversed(shape[1:]):
        strides.insert(0, strides[0] * int(d))
    across, along = strides[first.col_axis], strides[first.k_axis]
    if 1 not in (across, along):
        return None
    at = []
    for m in matrices:
        if (strides[m.col_axis], strides[m.k_axis]) != (across, along):
            return None
        fixed = sum(s * f for s, f in zip(strides, m.fixed, strict=True) if f is not None)
        at.append(fixed + m.k_start * along + m.col_start * across)
    wide = across == 1
    return MatrixColumns(first.value, tuple(at), along if wide else across, wide, length)


@dataclass
class Packing(KernelCall):
    """One such call."""

    pieces: list[MatrixColumns]
    form: PackedForm
    gates: int
    word: ClassVar[str] = "packing"

    def run(self, known: Mapping[Value, ir.Value], t: TensorType) -> ir.Value:
        """The dispatch."""
        numbers = {WIDTH: self.form.width, VECTORS: self.form.q, BESIDE: self.form.vectors(self.gates)}
        views: dict[Value, Memory] = {}
        for p in self.pieces:
            if p.value not in views:
                size = argument(f"size{len(views)}")
                numbers[size] = int(dims.product(p.value.shape))  # type: ignore[arg-type]
                m = self.input(ready(known[p.value]), p.value.type)
                views[p.value] = Memory(m.name, m.element, (size,))
        for i, p in enumerate(self.pieces):
            numbers |= {_stride(i): p.stride, _length(i): p.length}
            numbers |= {_at(i, g): at for g, at in enumerate(p.at)}
        self.output(t)
        sources = [views[p.value] for p in self.pieces]
        kernel = _PackingText(self, sources, t.dtype).kernel(self.signature([*numbers, GROUPS]))
        symbol = self.begin(kernel)
        units = -(-self.form.width // self.form.lanes) * self.gates
        groups = shares.groups(self, self.const(units))
        return self.call(symbol, groups, [*map(self.const, numbers.values()), groups])[0]


# Numbers of the kernel: columns, vectors of a block, those of all gates side by side, workgroups; and of a piece where
# each gate begins, from one vector or element to the next, and the length of k.
WIDTH, VECTORS, BESIDE, GROUPS = argument("width"), argument("q"), argument("beside"), argument("groups")
ROWS, COLUMNS = argument("rows"), argument("columns")  # of what is written


def _at(piece: int, gate: int) -> Name:
    return argument(f"at{piece}_{gate}")


def _stride(piece: int) -> Name:
    return argument(f"stride{piece}")


def _length(piece: int) -> Name:
    return argument(f"length{piece}")


class _PackingText:
    """The kernel's function: a workgroup packs some vectors of columns of some gates."""

    def __init__(self, call: Packing, sources: list[Memory], dtype: DType) -> None:
        self.t = Text(call.form.lanes)
        self.call, self.sources, self.element = call, sources, stored_type(dtype)
        self.out = Memory("%m_out", self.element, (ROWS, COLUMNS))

    def kernel(self, taken: KernelSignature) -> Kernel:
        """One function."""
        t = self.t
        put_memories(t, taken.reads, dict.fromkeys(self.sources))
        (out,) = taken.writes
        self._all(out)
        return Kernel((t.function("", taken, called_by_iree()),))

    def _all(self, binding: Name) -> None:
        t, gates = self.t, self.t.index(self.call.gates)
        starts: list[TextOperand] = []
        length: TextOperand = t.index(0)
        for i in range(len(self.sources)):
            starts.append(length)
            length = t.binary("addi", length, _length(i))
        of_block = t.binary("muli", VECTORS, t.index(t.lanes))
        blocks = t.binary("ceildivui", WIDTH, of_block)
        parts = t.binary("divui", t.binary("muli", VECTORS, gates), BESIDE)
        t.binary("muli", t.binary("muli", blocks, parts), length, to=ROWS)
        t.binary("muli", BESIDE, t.index(t.lanes), to=COLUMNS)
        t.put(self.out.subspan(binding, t.index(0)))
        units = t.binary("muli", t.binary("muli", blocks, VECTORS), gates)
        low, high = shares.share(t, units, GROUPS)
        with t.loop(low, high, t.index(1)) as unit:
            vector, gate = t.binary("divui", unit, gates), t.binary("remui", unit, gates)
            first = t.binary("muli", vector, t.index(t.lanes))
            here = t.binary("minui", first, WIDTH)
            count = t.binary("minui", t.binary("subi", WIDTH, here), t.index(t.lanes))
            inside = t.binary("addi", t.binary("muli", t.binary("remui", vector, VECTORS), gates), gate)  # in its block
            part = t.binary("muli", t.binary("divui", vector, VECTORS), parts)
            part = t.binary("addi", part, t.binary("divui", inside, BESIDE))
            top = t.binary("muli", part, length)
            left = t.binary("muli", t.binary("remui", inside, BESIDE), t.index(t.lanes))
            for i, start in enumerate(starts):
                self._copy(i, gate, here, count, t.binary("addi", top, start), left)

    def _copy(
        self, i: int, gate: TextOperand, first: TextOperand, count: TextOperand, top: TextOperand, left: TextOperand
    ) -> None:
        """Columns first .. first + count of a gate, to row `top` on; zeros behind them."""
        t, piece, source = self.t, self.call.pieces[i], self.sources[i]
        at: TextOperand = _at(i, 0)
        for g in range(1, self.call.gates):
            at = t.select(t.compare("eq", gate, t.index(g)), _at(i, g), at)
        whole = t.compare("eq", count, t.index(t.lanes))
        stride, length = _stride(i), _length(i)
        if piece.wide:
            at = t.binary("addi", at, first)
            for mask in (None, t.mask(count)):
                yes = whole if mask is None else t.opposite(whole)
                with t.when(yes), t.loop(t.index(0), length, t.index(1)) as k:
                    where = t.binary("addi", at, t.binary("muli", k, stride))
                    v = load_vector(t, source, [where], mask)
                    store_vector(t, v, self.out, [t.binary("addi", top, k), left])
            return
        enough = t.compare("uge", length, t.index(t.lanes))
        with t.when(enough):
            self._squares(i, at, first, count, top, left)
        with t.when(t.opposite(enough)):
            self._elements(i, at, first, count, top, left)

    def _squares(
        self, i: int, at: TextOperand, first: TextOperand, count: TextOperand, top: TextOperand, left: TextOperand
    ) -> None:
        """As many k at a time as there are columns; the last ones overlap those before."""
        t, source, kind = self.t, self.sources[i], self.t.vector(self.element)
        mask = t.mask(count)
        zero = t.constant("0.0", kind)
        last = t.binary("subi", WIDTH, t.index(1))
        rows = []
        for lane in range(t.lanes):
            column = t.binary("minui", t.add(first, lane), last)
            rows.append(t.binary("addi", at, t.binary("muli", column, _stride(i))))
        end = t.binary("subi", _length(i), t.index(t.lanes))
        with t.loop(t.index(0), _length(i), t.index(t.lanes)) as k:
            k = t.binary("minui", k, end)
            square = [load_vector(t, source, [t.binary("addi", r, k)]) for r in rows]
            under = t.binary("addi", top, k)
            for j, v in enumerate(turned(t, self.element, square)):
                v = t.op("arith.select {}, {}, {} : {}, {}", mask, v, zero, t.vector("i1"), kind)
                store_vector(t, v, self.out, [t.add(under, j), left])

    def _elements(
        self, i: int, at: TextOperand, first: TextOperand, count: TextOperand, top: TextOperand, left: TextOperand
    ) -> None:
        t, source = self.t, self.sources[i]
        zero = t.constant("0.0", t.vector(self.element))
        at = t.binary("addi", at, t.binary("muli", first, _stride(i)))
        with t.loop(t.index(0), _length(i), t.index(1)) as k:
            store_vector(t, zero, self.out, [t.binary("addi", top, k), left])
            with t.loop(t.index(0), count, t.index(1)) as lane:
                where = t.binary("addi", at, t.binary("muli", lane, _stride(i)))
                v = source.load(t, [t.binary("addi", where, k)])
                self.out.store(t, v, [t.binary("addi", top, k), t.binary("addi", left, lane)])

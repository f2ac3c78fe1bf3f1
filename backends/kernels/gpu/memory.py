"""Memories of GPU kernels: flat bindings, and the memory that a workgroup shares.

Bindings are one-dimensional: SPIR-V takes a binding at a nonzero offset only if its type says
`strided<[1], offset: ?>`, and only one dimension lets every size but that stay a run-time value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lstm_ir.backends.kernels.body.access import ROW
from lstm_ir.backends.kernels.body.atoms import MemorySource
from lstm_ir.backends.kernels.body.plan import LoopPlan, walk
from lstm_ir.backends.kernels.text.memory import ElementPlace, Memory
from lstm_ir.backends.kernels.text.statements import MemRef, Name, Subspan, TextOperand, operation
from lstm_ir.backends.kernels.text.text import Text, scalar_type, stored_type
from lstm_ir.ir.cached import cached_property
from lstm_ir.ir.types import DType


@dataclass(frozen=True)
class FlatMemory(Memory):
    """A binding whose elements are addressed by one index."""

    @cached_property
    def kind(self) -> MemRef:
        """The memref type."""
        known = all(isinstance(d, int) for d in self.sizes)
        return MemRef((self.count if known else None,), self.element, "strided<[1], offset: ?>")

    def at(self, t: Text, where: Sequence[TextOperand]) -> Sequence[TextOperand]:
        """One index, row-major."""
        return [_linear(t, where, self.sizes)]

    def elements(self, t: Text) -> TextOperand:
        """The number of elements."""
        total: TextOperand = t.index(1)
        for d in self.sizes:
            total = t.binary("muli", total, t.index(d) if isinstance(d, int) else d)
        return total

    def open(self, t: Text, binding: Name, zero: TextOperand) -> None:
        """The statements that make it from a binding; `zero` is unknown to the compiler."""
        sizes = (self.elements(t),) if self.kind.sizes == (None,) else ()
        t.put(Subspan(self.ref, binding, zero, self.kind, sizes))


@dataclass(frozen=True)
class MemoryPiece(FlatMemory):
    """A part of a flat tensor that holds several values, some as the bits of 32-bit integers."""

    whole: FlatMemory

    @property
    def base(self) -> Name:
        """The index of its first element there."""
        return Name(f"{self.name}_base", "index")

    @cached_property
    def kind(self) -> MemRef:
        """The memref type of the flat tensor."""
        return self.whole.kind

    def at(self, t: Text, where: Sequence[TextOperand]) -> Sequence[TextOperand]:
        """One index into the flat tensor."""
        return [t.binary("addi", self.base, _linear(t, where, self.sizes))]

    def load(self, t: Text, where: Sequence[TextOperand]) -> Name:
        """One element."""
        stored = self.whole.element
        v = t.op("memref.load {}[{}] : {}", self.whole.ref, self.at(t, where), self.kind)
        if stored == self.element:
            return v
        way = "bitcast" if self.element[0] == "f" else "trunci"
        return t.op("arith.{} {} : {} to {}", way, v, stored, self.element)

    def store(self, t: Text, v: TextOperand, where: Sequence[TextOperand]) -> None:
        """One element."""
        stored = self.whole.element
        if stored != self.element:
            way = "bitcast" if self.element[0] == "f" else "extui"
            v = t.op("arith.{} {} : {} to {}", way, v, self.element, stored)
        t.line("memref.store {}, {}[{}] : {}", v, self.whole.ref, self.at(t, where), self.kind)


@dataclass(frozen=True)
class LocalMemory(Memory):
    """Memory that the threads of a workgroup share; rows are those of the workgroup's tile."""

    @cached_property
    def kind(self) -> MemRef:
        """The memref type."""
        return MemRef((self.count,), self.element, "#gpu.address_space<workgroup>")

    def at(self, t: Text, where: Sequence[TextOperand]) -> Sequence[TextOperand]:
        """One index, row-major."""
        return [_linear(t, where, self.sizes)]

    def row(self, t: Text, place: ElementPlace) -> TextOperand | None:
        """The row among those of the tile."""
        return place.slot

    def open(self, t: Text) -> None:
        """The statement that makes it."""
        t.buffers.append(operation("memref.alloc() : {}", self.kind, to=self.ref))


def _linear(t: Text, where: Sequence[TextOperand], sizes: Sequence[int | TextOperand]) -> TextOperand:
    total: TextOperand | None = None
    for at, size in zip(where, sizes, strict=True):
        if total is not None:
            wide = t.index(size) if isinstance(size, int) else size
            total = t.binary("muli", total, wide) if size != 1 else total
            total = t.binary("addi", total, at)
        else:
            total = at
    return t.index(0) if total is None else total


def local_memories(plan: LoopPlan, rows: int) -> dict[MemorySource, LocalMemory]:
    """Two copies of every carry and every computed row, for the rows of one tile."""
    out: dict[MemorySource, LocalMemory] = {}
    for c in plan.components:
        for i, static in c.carries:
            v = plan.carries[i]
            access = plan.access(v, static)
            sizes = [rows if a == ROW else d for a, d in zip(access, v.shape, strict=True)]
            name, kind = f"%m_carry{i}", stored_type(v.dtype)
            out[MemorySource("carry", i)] = LocalMemory(name, kind, (2, *map(int, sizes)))
    for temp in plan.temps:
        sizes = [rows, temp.width] if temp.width else [rows]
        kind = stored_type(temp.atom.dtype)
        out[MemorySource("temp", temp.index)] = LocalMemory(f"%m_temp{temp.index}", kind, tuple(sizes))
    return out


def partials(plan: LoopPlan, threads: int) -> dict[DType, LocalMemory]:
    """A number per thread, for reductions."""
    roots = [r.atom for c in plan.components for s in c.sweeps for r in s.roots]
    kinds = {a.dtype for r in roots for a in walk(r) if a.op == "reduce"}
    ordered = sorted(kinds, key=lambda d: d.bits)
    return {d: LocalMemory(f"%m_partial_{d.value}", scalar_type(d), (threads,)) for d in ordered}

"""Memories of GPU kernels: flat bindings, and the memory that a workgroup shares.

Bindings are one-dimensional: SPIR-V takes a binding at a nonzero offset only if its type says
`strided<[1], offset: ?>`, and only one dimension lets every size but that stay a run-time value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lstm_ir.backends.kernels.text.memory import Memory, Place
from lstm_ir.backends.kernels.text.text import Text


@dataclass(frozen=True)
class FlatMemory(Memory):
    """A binding whose elements are addressed by one index."""

    @property
    def kind(self) -> str:
        """The memref type."""
        count = 1
        for d in self.sizes:
            count = count * d if isinstance(count, int) and isinstance(d, int) else -1
            if count < 0:
                break
        return f"memref<{'?' if count < 0 else count}x{self.element}, strided<[1], offset: ?>>"

    def at(self, t: Text, where: Sequence[str]) -> Sequence[str]:
        """One index, row-major."""
        return [_linear(t, where, self.sizes)]

    def size(self, t: Text) -> str:
        """The number of elements."""
        total = t.index(1)
        for d in self.sizes:
            total = t.binary("muli", total, d if isinstance(d, str) else t.index(d))
        return total

    def open(self, t: Text, binding: str, zero: str) -> None:
        """The statements that make it from a binding; `zero` is unknown to the compiler."""
        sizes = f"{{{self.size(t)}}}" if "<?x" in self.kind else ""
        source = f"stream.binding.subspan {binding}[{zero}] : !stream.binding"
        t.line(f"{self.name} = {source} -> {self.kind}{sizes}")


@dataclass(frozen=True)
class Piece(FlatMemory):
    """A part of a flat tensor that holds several values, some as the bits of 32-bit integers."""

    whole: FlatMemory

    @property
    def base(self) -> str:
        """The index of its first element there."""
        return f"{self.name}_base"

    @property
    def kind(self) -> str:
        """The memref type of the flat tensor."""
        return self.whole.kind

    def at(self, t: Text, where: Sequence[str]) -> Sequence[str]:
        """One index into the flat tensor."""
        return [t.binary("addi", self.base, _linear(t, where, self.sizes))]

    def load(self, t: Text, where: Sequence[str]) -> str:
        """One element."""
        stored = self.whole.element
        v = t.op(f"memref.load {self.whole.name}[{self.at(t, where)[0]}] : {self.kind}")
        if stored == self.element:
            return v
        way = "bitcast" if self.element[0] == "f" else "trunci"
        return t.op(f"arith.{way} {v} : {stored} to {self.element}")

    def store(self, t: Text, v: str, where: Sequence[str]) -> None:
        """One element."""
        stored = self.whole.element
        if stored != self.element:
            way = "bitcast" if self.element[0] == "f" else "extui"
            v = t.op(f"arith.{way} {v} : {self.element} to {stored}")
        t.line(f"memref.store {v}, {self.whole.name}[{self.at(t, where)[0]}] : {self.kind}")


@dataclass(frozen=True)
class LocalMemory(Memory):
    """Memory that the threads of a workgroup share; rows are those of the workgroup's tile."""

    @property
    def count(self) -> int:
        """Elements."""
        n = 1
        for d in self.sizes:
            assert isinstance(d, int)
            n *= d
        return n

    @property
    def kind(self) -> str:
        """The memref type."""
        return f"memref<{self.count}x{self.element}, #gpu.address_space<workgroup>>"

    @property
    def bytes(self) -> int:
        """Its size."""
        bits = int(self.element.lstrip("bfi"))
        return self.count * max(8, bits) // 8

    def at(self, t: Text, where: Sequence[str]) -> Sequence[str]:
        """One index, row-major."""
        return [_linear(t, where, self.sizes)]

    def row(self, place: Place) -> str | None:
        """The row among those of the tile."""
        return place.slot

    def open(self, t: Text) -> None:
        """The statement that makes it."""
        t.buffers.append(f"      {self.name} = memref.alloc() : {self.kind}")


def _linear(t: Text, where: Sequence[str], sizes: Sequence[int | str]) -> str:
    total = None
    for at, size in zip(where, sizes, strict=True):
        if total is not None:
            wide = size if isinstance(size, str) else t.index(size)
            total = t.binary("muli", total, wide) if size != 1 else total
            total = t.binary("addi", total, at)
        else:
            total = at
    return t.index(0) if total is None else total

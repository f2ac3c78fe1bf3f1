"""The memories of a kernel: bindings with their shapes, and how elements are addressed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lstm_ir.backends.kernels.body.access import Access, Col, Row
from lstm_ir.backends.kernels.text.text import Text

ELEMENT_BYTES = {"i8": 1, "f16": 2, "bf16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8}


@dataclass(frozen=True)
class Memory:
    """A binding: `sizes` are ints or names of index values of the kernel."""

    name: str
    element: str
    sizes: tuple[int | str, ...]

    @property
    def kind(self) -> str:
        """The memref type."""
        dims = "x".join(str(d) if isinstance(d, int) else "?" for d in self.sizes)
        return f"memref<{dims}x{self.element}>" if self.sizes else f"memref<{self.element}>"

    def at(self, t: Text, where: Sequence[str]) -> Sequence[str]:
        """The indices of an element in the memref."""
        return where

    def load(self, t: Text, where: Sequence[str]) -> str:
        """One element."""
        return t.op(f"memref.load {self.name}[{', '.join(self.at(t, where))}] : {self.kind}")

    def store(self, t: Text, v: str, where: Sequence[str]) -> None:
        """One element."""
        t.line(f"memref.store {v}, {self.name}[{', '.join(self.at(t, where))}] : {self.kind}")

    def row(self, place: Place) -> str | None:
        """The row of `place` as this memory counts rows."""
        return place.row

    def subspan(self, binding: str, zero: str) -> str:
        """The statement that makes it from a binding."""
        dynamic = [d for d in self.sizes if isinstance(d, str)]
        sizes = "{" + ", ".join(dynamic) + "}" if dynamic else ""
        source = f"stream.binding.subspan {binding}[{zero}] : !stream.binding"
        return f"{self.name} = {source} -> {self.kind}{sizes}"


@dataclass(frozen=True)
class Shifted(Memory):
    """Rows read one off: row t is t-1 in memory, or t+1; at the end it is `edge`."""

    edge: Memory | float
    later: bool
    length: str  # rows, an index value

    def moved(self, t: Text, where: Sequence[str]) -> tuple[list[str], str]:
        """The indices in memory, and whether the row is the edge."""
        row, rest = where[0], where[1:]
        # Constants, not operations, tell the two ways apart: see `outline`.
        later = t.constant("true" if self.later else "false", "i1")
        last = t.binary("subi", self.length, t.index(1))
        end = t.op(f"arith.select {later}, {t.index(0)}, {last} : index")
        is_edge = t.op(f"arith.cmpi eq, {row}, {end} : index")
        step = t.binary("addi", row, t.index(-1 if self.later else 1))
        return [t.op(f"arith.select {is_edge}, {end}, {step} : index"), *rest], is_edge

    def ends(
        self, t: Text, v: str, is_edge: str, where: Sequence[str], mask: str | None, lanes: bool
    ) -> str:
        """`v`, or what the edge holds."""
        kind = t.vector(self.element) if lanes else self.element
        if not isinstance(self.edge, Memory):
            first = t.constant(f"{self.edge:.17e}", kind)
        elif lanes:
            first = load_vector(t, self.edge, [t.index(0), *where[1:]], mask)
        else:
            first = self.edge.load(t, [t.index(0), *where[1:]])
        return t.op(f"arith.select {is_edge}, {first}, {v} : {kind}")


@dataclass(frozen=True)
class Place:
    """Where an element is wanted: the row, the block's first column, the lanes that exist."""

    row: str | None
    col: str | None
    mask: str | None = None
    slot: str | None = None  # the row among those that a group of threads holds


def indices(t: Text, access: Access, place: Place, m: Memory | None = None) -> list[str]:
    """The index values of `access` at `place`, in memory `m`."""
    out = []
    for at in access:
        if isinstance(at, Row):
            row = place.row if m is None else m.row(place)
            assert row is not None
            out.append(row)
        elif isinstance(at, Col):
            assert place.col is not None
            out.append(t.add(place.col, at.start))
        else:
            out.append(t.index(at))
    return out


def load_scalar(t: Text, m: Memory, at: Sequence[str]) -> str:
    """One element as it is stored."""
    if isinstance(m, Shifted):
        there, is_edge = m.moved(t, at)
        return m.ends(t, m.load(t, there), is_edge, at, None, False)
    return m.load(t, at)


def store_scalar(t: Text, v: str, m: Memory, at: Sequence[str]) -> None:
    """One element."""
    m.store(t, v, at)


def load_vector(t: Text, m: Memory, at: Sequence[str], mask: str | None = None) -> str:
    """A full vector; lanes outside `mask` are zero and not read."""
    if isinstance(m, Shifted):
        there, is_edge = m.moved(t, at)
        return m.ends(t, _vector(t, m, there, mask), is_edge, at, mask, True)
    return _vector(t, m, at, mask)


def _vector(t: Text, m: Memory, at: Sequence[str], mask: str | None) -> str:
    kind = t.vector(m.element)
    where = f"{m.name}[{', '.join(at)}]"
    if mask is None:
        return t.op(f"vector.load {where} : {m.kind}, {kind}")
    zero = t.constant("0" if m.element[0] == "i" else "0.0", kind)
    return t.op(
        f"vector.maskedload {where}, {mask}, {zero} : "
        f"{m.kind}, {t.vector('i1')}, {kind} into {kind}"
    )


def store_vector(t: Text, v: str, m: Memory, at: Sequence[str], mask: str | None = None) -> None:
    """A full vector, or the lanes of `mask`."""
    kind = t.vector(m.element)
    where = f"{m.name}[{', '.join(at)}]"
    if mask is None:
        t.line(f"vector.store {v}, {where} : {m.kind}, {kind}")
    else:
        t.line(f"vector.maskedstore {where}, {mask}, {v} : {m.kind}, {t.vector('i1')}, {kind}")

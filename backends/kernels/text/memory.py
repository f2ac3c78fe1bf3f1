"""The memories of a kernel: bindings with their shapes, and how elements are addressed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lstm_ir.backends.kernels.body.access import Access, ColumnAxis, LoopAxis, NamedIndex, PickedAxis, RowAxis
from lstm_ir.backends.kernels.text.statements import Kind, MemRef, Name, Subspan, TextOperand
from lstm_ir.backends.kernels.text.text import Text
from lstm_ir.ir.cached import cached_property

ELEMENT_BYTES = {"i8": 1, "f16": 2, "bf16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8}


@dataclass(frozen=True)
class Memory:
    """A binding: `sizes` are ints or index values of the kernel."""

    name: str
    element: str
    sizes: tuple[int | TextOperand, ...]

    def size(self, axis: int) -> int:
        """A size that is a number."""
        d = self.sizes[axis]
        assert isinstance(d, int)
        return d

    @property
    def count(self) -> int:
        """Elements, where all sizes are numbers."""
        return math.prod(self.size(axis) for axis in range(len(self.sizes)))

    @property
    def bytes(self) -> int:
        """Their bytes."""
        return self.count * ELEMENT_BYTES[self.element]

    @cached_property
    def kind(self) -> MemRef:
        """The memref type."""
        sizes = tuple(d if isinstance(d, int) else None for d in self.sizes)
        return MemRef(sizes, self.element)

    @cached_property
    def ref(self) -> Name:
        """The memref."""
        return Name(self.name, self.kind)

    def at(self, t: Text, where: Sequence[TextOperand]) -> Sequence[TextOperand]:
        """The indices of an element in the memref."""
        return where

    def load(self, t: Text, where: Sequence[TextOperand]) -> Name:
        """One element."""
        return t.op("memref.load {}[{}] : {}", self.ref, self.at(t, where), self.kind)

    def store(self, t: Text, v: TextOperand, where: Sequence[TextOperand]) -> None:
        """One element."""
        t.line("memref.store {}, {}[{}] : {}", v, self.ref, self.at(t, where), self.kind)

    def row(self, t: Text, place: ElementPlace) -> TextOperand | None:
        """The row of `place` as this memory counts rows."""
        return place.row

    def placed(self, t: Text, where: list[TextOperand]) -> list[TextOperand]:
        """The indices of an element of a part, here the whole."""
        return where

    def subspan(self, binding: Name, offset: TextOperand) -> Subspan:
        """The statement that makes it from a binding."""
        sizes = tuple(d for d in self.sizes if isinstance(d, TextOperand))
        return Subspan(self.ref, binding, offset, self.kind, sizes)


def put_memories(t: Text, bindings: Iterable[Name], memories: Iterable[Memory]) -> None:
    """The memories of these bindings, each from its start on."""
    for binding, m in zip(bindings, memories, strict=True):
        t.put(m.subspan(binding, t.index(0)))


@dataclass(frozen=True)
class TensorPart(Memory):
    """What lies from `start` on along one axis, counted from the last one; `sizes` are those of the whole."""

    axis: int
    start: int

    def placed(self, t: Text, where: list[TextOperand]) -> list[TextOperand]:
        """The indices in the whole; an operation for each part, the first one too: see `outline`."""
        out = list(where)
        out[self.axis] = t.binary("addi", out[self.axis], t.index(self.start))
        return out


@dataclass(frozen=True)
class Shifted(Memory):
    """Rows read one off: row t is t-1 in memory, or t+1; at the end it is `edge`."""

    edge: Memory | float
    later: bool
    length: TextOperand  # rows, an index value

    def moved(self, t: Text, where: Sequence[TextOperand]) -> tuple[list[TextOperand], Name]:
        """The indices in memory, and whether the row is the edge."""
        row, rest = where[0], where[1:]
        # Constants, not operations, tell the two ways apart: see `outline`.
        later = t.constant("true" if self.later else "false", "i1")
        last = t.binary("subi", self.length, t.index(1))
        end = t.select(later, t.index(0), last)
        is_edge = t.compare("eq", row, end)
        step = t.binary("addi", row, t.index(-1 if self.later else 1))
        return [t.select(is_edge, end, step), *rest], is_edge

    def ends(
        self, t: Text, v: TextOperand, is_edge: TextOperand, where: Sequence[TextOperand],
        mask: TextOperand | None, lanes: bool,
    ) -> Name:  # fmt: skip
        """`v`, or what the edge holds."""
        kind = t.vector(self.element) if lanes else self.element
        first: TextOperand
        if not isinstance(self.edge, Memory):
            first = t.constant(f"{self.edge:.17e}", kind)
        elif lanes:
            first = load_vector(t, self.edge, [t.index(0), *where[1:]], mask)
        else:
            first = self.edge.load(t, [t.index(0), *where[1:]])
        return t.select(is_edge, first, v, kind)


def on_stack(t: Text, element: str, sizes: tuple[int, ...]) -> Memory:
    """A buffer of the function's own."""
    return Memory(t.stack(MemRef(sizes, element)).text, element, sizes)


@dataclass(frozen=True)
class ElementPlace:
    """Where an element is wanted: the row, the block's first column, the lanes that exist, indices of loops."""

    row: TextOperand | None
    col: TextOperand | None
    mask: TextOperand | None = None
    slot: TextOperand | None = None  # the row among those that a group of threads holds
    loops: Mapping[int, TextOperand] = field(default_factory=dict)  # by level
    picked: TextOperand | None = None  # of a table's rows
    lanes: int | None = None  # the level of the loop whose turns are the lanes of a vector

    def counted(self, level: int, index: TextOperand) -> ElementPlace:
        """One more index, a single one, though the lanes of what is around it count the same level."""
        lanes = None if self.lanes == level else self.lanes
        return replace(self, loops={**self.loops, level: index}, lanes=lanes)


def indices(t: Text, access: Access, place: ElementPlace, m: Memory | None = None) -> list[TextOperand]:
    """The index values of `access` at `place`, in memory `m`."""
    out: list[TextOperand] = []
    for at in access:
        if isinstance(at, RowAxis):
            row = place.row if m is None else m.row(t, place)
            assert row is not None
            out.append(row)
        elif isinstance(at, ColumnAxis):
            assert place.col is not None
            out.append(t.add(place.col, at.start))
        elif isinstance(at, LoopAxis):
            out.append(t.add(place.loops[at.level], at.start))
        elif isinstance(at, NamedIndex):
            out.append(t.extent(at.place))
        elif isinstance(at, PickedAxis):
            assert place.picked is not None
            out.append(place.picked)
        else:
            out.append(t.index(at))
    return out if m is None else m.placed(t, out)


def load_scalar(t: Text, m: Memory, at: Sequence[TextOperand]) -> Name:
    """One element as it is stored."""
    if isinstance(m, Shifted):
        there, is_edge = m.moved(t, at)
        return m.ends(t, m.load(t, there), is_edge, at, None, False)
    return m.load(t, at)


def store_scalar(t: Text, v: TextOperand, m: Memory, at: Sequence[TextOperand]) -> None:
    """One element."""
    m.store(t, v, at)


def load_vector(t: Text, m: Memory, at: Sequence[TextOperand], mask: TextOperand | None = None, lanes: int = 0) -> Name:
    """A full vector, or one of `lanes`; those outside `mask` are zero and not read."""
    if isinstance(m, Shifted):
        there, is_edge = m.moved(t, at)
        return m.ends(t, _vector(t, m, there, mask, lanes), is_edge, at, mask, True)
    return _vector(t, m, at, mask, lanes)


def _vector(t: Text, m: Memory, at: Sequence[TextOperand], mask: TextOperand | None, lanes: int) -> Name:
    kind, bits = t.vector(m.element, lanes), t.vector("i1", lanes)
    if mask is None:
        return t.op("vector.load {}[{}] : {}, {}", m.ref, at, m.kind, kind)
    zero = t.constant("0" if m.element[0] == "i" else "0.0", kind)
    kinds: list[Kind] = [m.kind, bits, kind]
    return t.op("vector.maskedload {}[{}], {}, {} : {} into {}", m.ref, at, mask, zero, kinds, kind)


def store_vector(
    t: Text, v: TextOperand, m: Memory, at: Sequence[TextOperand], mask: TextOperand | None = None,
    lanes: int = 0,
) -> None:  # fmt: skip
    """A full vector, or one of `lanes`; or those that `mask` has."""
    kind, bits = t.vector(m.element, lanes), t.vector("i1", lanes)
    if mask is None:
        t.line("vector.store {}, {}[{}] : {}, {}", v, m.ref, at, m.kind, kind)
    else:
        kinds: list[Kind] = [m.kind, bits, kind]
        t.line("vector.maskedstore {}[{}], {}, {} : {}", m.ref, at, mask, v, kinds)


def address(t: Text, ref: TextOperand, kind: MemRef) -> Name:
    """Where a memory is, as an index: for loads that memref has no operation for."""
    return t.op("memref.extract_aligned_pointer_as_index {} : {} -> index", ref, kind)


def acquired(t: Text, pointer: TextOperand) -> Name:
    """An i32 as it is now; what was stored before it was changed is seen after this."""
    acquire = "<{alignment = 4 : i64, ordering = 4 : i64}>"
    return t.op(f'"llvm.load"({{}}) {acquire} : (!llvm.ptr) -> i32', pointer)

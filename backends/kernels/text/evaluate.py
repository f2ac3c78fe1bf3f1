"""Atoms at a place as kernel text: loads, numbers, sums from the buffer, elementwise ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lstm_ir.backends.kernels.body.access import ColumnAxis
from lstm_ir.backends.kernels.body.atoms import Atom, Source
from lstm_ir.backends.kernels.text import integers
from lstm_ir.backends.kernels.text.elementwise import Ops
from lstm_ir.backends.kernels.text.memory import (
    ElementPlace,
    Memory,
    Shifted,
    indices,
    load_scalar,
    load_vector,
    store_scalar,
    store_vector,
)
from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.text import Text, scalar_type
from lstm_ir.ir.types import DType

Sums = Callable[[Atom], TextOperand]


class Evaluator:
    """Atoms and stores; `prefix` gives the leading indices of a memory at this step."""

    def __init__(
        self,
        t: Text,
        memories: Mapping[Source, Memory],
        prefix: Callable[[Source, bool], list[TextOperand]],
        step: TextOperand,
        rounds: bool = False,
    ) -> None:
        self.t, self.memories, self.prefix, self.step = t, memories, prefix, step
        self.ops = Ops(t, rounds)

    def load(self, a: Atom, place: ElementPlace, wide: bool) -> TextOperand:
        """A load, as a vector or one element."""
        assert a.source is not None
        m, wide = self.memories[a.source], wide and self.t.lanes > 0
        at = [*self.prefix(a.source, False), *indices(self.t, a.access, place, m)]
        v = load_vector(self.t, m, at, place.mask) if wide else load_scalar(self.t, m, at)
        if a.dtype is not DType.i1:
            return v
        kind = self.t.vector("i8") if wide else "i8"
        return self.t.op("arith.cmpi ne, {}, {} : {}", v, self.t.number(0, DType.i8, wide), kind)

    def fetch(self, a: Atom, place: ElementPlace) -> None:
        """Bring what a load will read into the cache."""
        assert a.source is not None
        m = self.memories[a.source]
        at = [*self.prefix(a.source, False), *indices(self.t, a.access, place, m)]
        if isinstance(m, Shifted):
            at, _ = m.moved(self.t, at)
        self.t.line("memref.prefetch {}[{}], read, locality<3>, data : {}", m.ref, at, m.kind)

    def store(
        self, v: TextOperand, dtype: DType, dest: Source, access: object, place: ElementPlace, wide: bool
    ) -> None:
        """A result element or vector to its memory."""
        m, wide = self.memories[dest], wide and self.t.lanes > 0
        if dtype is DType.i1:
            kinds = (self.t.vector("i1"), self.t.vector("i8")) if wide else ("i1", "i8")
            v = self.t.op("arith.extui {} : {} to {}", v, kinds[0], kinds[1])
        at = [*self.prefix(dest, True), *indices(self.t, access, place, m)]  # type: ignore[arg-type]
        if wide:
            store_vector(self.t, v, m, at, place.mask)
        else:
            store_scalar(self.t, v, m, at)

    def value(
        self, root: Atom, place: ElementPlace, wide: bool, sums: Sums | None, known: dict[Atom, TextOperand]
    ) -> TextOperand:
        """The atom at `place`; `known` holds what was computed there already."""
        for a in order(root):
            if a not in known:
                known[a] = self._one(a, place, sums, known)
        return self.widened(root, known[root]) if wide else known[root]

    def widened(self, a: Atom, v: TextOperand) -> TextOperand:
        """The value of `a` as a vector."""
        if a.cols or not self.t.lanes:
            return v
        kind = scalar_type(a.dtype)
        return self.t.op("vector.broadcast {} : {} to {}", v, kind, self.t.vector(kind))

    def _one(self, a: Atom, place: ElementPlace, sums: Sums | None, known: dict[Atom, TextOperand]) -> TextOperand:
        if a.op == "load":
            return self.load(a, place, a.cols)
        if a.op == "splat":
            return self.t.number(a.number, a.dtype, False)
        if a.op == "step":
            return self.step
        if a.op == "dot":
            assert sums is not None
            return sums(a)
        if a.op == "reduce":
            return self._reduce(a, place)
        args = [self.widened(x, known[x]) if a.cols else known[x] for x in a.args]
        return self.ops.emit(a, args, a.cols)

    def _reduce(self, a: Atom, place: ElementPlace) -> TextOperand:
        """A loop over the columns with a vector of partial results, then across its lanes."""
        t, (inner,) = self.t, a.args
        kind = scalar_type(a.dtype)
        wide = t.vector(kind)
        op, start, word = reduction(a.kind, a.dtype)
        initial = t.number(start, a.dtype, True)
        at, (acc,), (total,) = t.carried(t.index(0), t.index(a.width), t.index(t.lanes), [initial], [wide])
        mask = None
        if a.width % t.lanes:
            left = t.binary("subi", t.index(a.width), at)
            mask = t.mask(left)
        v = self.value(inner, ElementPlace(place.row, at, mask), True, None, {})
        new = t.binary(op, acc, v, wide)
        if mask is not None:
            new = t.op("arith.select {}, {}, {} : {}, {}", mask, new, acc, t.vector("i1"), wide)
        t.close([new], [wide])
        return t.op("vector.reduction <{}>, {} : {} into {}", word, total, wide, kind)


_REDUCE = {
    "reduce_sum": ("addf", 0.0, "add"),
    "reduce_max": ("maximumf", float("-inf"), "maximumf"),
    "reduce_min": ("minimumf", float("inf"), "minimumf"),
}


def reduction(kind: str, dtype: DType) -> tuple[str, float, str]:
    """(arith op, the number that it begins with, the word across lanes) of a reduction."""
    return _REDUCE[kind] if dtype.is_float else integers.reduction(kind, dtype)


def order(root: Atom) -> list[Atom]:
    """The atom's operands before it; products and reductions are leaves."""
    out: list[Atom] = []
    seen: set[Atom] = set()
    stack: list[tuple[Atom, bool]] = [(root, False)]
    while stack:
        a, ready = stack.pop()
        if ready:
            out.append(a)
        elif a not in seen:
            seen.add(a)
            stack.append((a, True))
            if a.op not in ("dot", "reduce"):
                stack.extend((x, False) for x in a.args)
    return out


def row_word(e: Evaluator, a: Atom, row: TextOperand, k: TextOperand) -> TextOperand:
    """Word k, four elements, of the computed row that the load `a` reads."""
    assert a.source is not None
    source = Source("words", a.source.index)
    m = e.memories[source]
    return load_scalar(e.t, m, [*e.prefix(source, False), *indices(e.t, a.access, ElementPlace(row, k), m)])


def row_element(e: Evaluator, a: Atom, row: TextOperand, k: TextOperand) -> TextOperand:
    """Element k of the row that the load `a` reads."""
    assert any(isinstance(at, ColumnAxis) for at in a.access)
    return e.load(a, ElementPlace(row, k), False)

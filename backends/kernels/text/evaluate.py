"""Atoms at a place as kernel text: loads, numbers, sums from the buffer, elementwise ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from lstm_ir.backends.kernels.body.access import Access, ColumnAxis, LoopAxis, PickedAxis
from lstm_ir.backends.kernels.body.atoms import WHOLE, Atom, MemorySource
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
        memories: Mapping[MemorySource, Memory],
        prefix: Callable[[MemorySource, bool], list[TextOperand]],
        step: TextOperand,
        rounds: bool = False,
    ) -> None:
        self.t, self.memories, self.prefix, self.step = t, memories, prefix, step
        self.ops = Ops(t, rounds)

    def across(self, a: Atom) -> bool:
        """Whether an atom differs between the lanes of vectors, which are columns."""
        return a.cols

    def wide(self, a: Atom, place: ElementPlace) -> bool:
        """Whether an atom is a vector at a place: it differs between lanes, or between turns that are lanes."""
        return self.across(a) or any(at.level == place.lanes for at in a.loops)

    def load(self, a: Atom, place: ElementPlace, wide: bool) -> TextOperand:
        """A load, as a vector or one element."""
        assert a.source is not None
        m, wide, first = self.memories[a.source], wide and self.t.lanes > 0, self.prefix(a.source, False)
        v = self.read(m, [*first, *indices(self.t, a.access, place, m)], len(first), a.access, place, wide)
        if a.dtype is not DType.i1:
            return v
        return self.ops.convert(v, DType.i8, DType.i1, wide)

    def fetch(self, a: Atom, place: ElementPlace) -> None:
        """Bring what a load will read into the cache."""
        assert a.source is not None
        m = self.memories[a.source]
        at = [*self.prefix(a.source, False), *indices(self.t, a.access, place, m)]
        if isinstance(m, Shifted):
            at, _ = m.moved(self.t, at)
        self.t.line("memref.prefetch {}[{}], read, locality<3>, data : {}", m.ref, at, m.kind)

    def store(
        self, v: TextOperand, dtype: DType, dest: MemorySource, access: Access, place: ElementPlace, wide: bool
    ) -> None:
        """A result element or vector to its memory."""
        m, wide, first = self.memories[dest], wide and self.t.lanes > 0, self.prefix(dest, True)
        if dtype is DType.i1:
            kinds = (self.t.vector("i1"), self.t.vector("i8")) if wide else ("i1", "i8")
            v = self.t.op("arith.extui {} : {} to {}", v, kinds[0], kinds[1])
        self.write(v, m, [*first, *indices(self.t, access, place, m)], len(first), access, place, wide)

    def read(
        self, m: Memory, at: list[TextOperand], first: int, access: Access, place: ElementPlace, wide: bool
    ) -> TextOperand:
        """What is stored at `at`, of which the indices of `access` begin with number `first`."""
        return load_vector(self.t, m, at, place.mask) if wide else load_scalar(self.t, m, at)

    def write(
        self, v: TextOperand, m: Memory, at: list[TextOperand], first: int, access: Access, place: ElementPlace,
        wide: bool,
    ) -> None:  # fmt: skip
        """What `read` gives."""
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
        return self.widened(root, known[root], place) if wide else known[root]

    def widened(self, a: Atom, v: TextOperand, place: ElementPlace) -> TextOperand:
        """The value of `a` as a vector."""
        if self.wide(a, place) or not self.t.lanes:
            return v
        kind = scalar_type(a.dtype)
        return self.t.op("vector.broadcast {} : {} to {}", v, kind, self.t.vector(kind))

    def _one(self, a: Atom, place: ElementPlace, sums: Sums | None, known: dict[Atom, TextOperand]) -> TextOperand:
        if a.op == "load":
            return self.load(a, place, self.wide(a, place))
        if a.op == "splat":
            return self.t.number(a.number, a.dtype, False)
        if a.op == "step":
            return self.step
        if a.op == "dot":
            assert sums is not None
            return sums(a)
        if a.op == "reduce":
            return self.reduced(a, place, known)
        if a.op == "fold":
            return self._fold(a, place, sums, known)
        if a.op == "over_rows":
            return self._over_rows(a, place, known)
        if a.op == "turns":
            return self._turns(a, place, known)
        if a.op == "pick":
            return self._picked(a, known[a.args[0]], place)
        wide = self.wide(a, place)
        args = [self.widened(x, known[x], place) if wide else known[x] for x in a.args]
        return self.ops.emit(a, args, wide)

    def _picked(self, a: Atom, index: TextOperand, place: ElementPlace) -> TextOperand:
        """A row of a table; an index beyond its ends is moved to the nearest row."""
        assert a.source is not None
        t, m, dtype = self.t, self.memories[a.source], a.args[0].dtype
        axis = next(i for i, at in enumerate(a.access) if isinstance(at, PickedAxis))
        if dtype.bits < 32:
            way = "extsi" if dtype.is_signed else "extui"
            index, dtype = t.op(f"arith.{way} {{}} : {scalar_type(dtype)} to i32", index), DType.i32
        cast = "index_cast" if dtype.is_signed else "index_castui"
        at = t.op(f"arith.{cast} {{}} : {scalar_type(dtype)} to index", index)
        size = m.sizes[axis]
        last = t.index(size - 1) if isinstance(size, int) else t.add(size, -1)
        at = t.binary("minsi", t.binary("maxsi", at, t.index(0)), last)
        return self.load(a, replace(place, picked=at), a.cols)

    def steady(self, a: Atom, place: ElementPlace, sums: Sums | None, known: dict[Atom, TextOperand]) -> None:
        """Compute, into `known`, what of `a` no loop inside of the kernel changes."""
        for x in order(a):
            if not x.loops and x not in known and x.op != "fold" and all(y in known for y in _here(x)):
                known[x] = self._one(x, place, sums, known)
        for x in order(a):
            if x.op == "reduce":
                self.numbers(x.args[0], place, known, x.loops)

    def numbers(
        self, a: Atom, place: ElementPlace, known: dict[Atom, TextOperand], loops: tuple[LoopAxis, ...]
    ) -> None:
        """Compute, into `known`, what of `a` is a number for all columns, and for all turns of `loops`."""
        for x in order(a):
            counted = x.loops if loops else ()
            if not x.cols and not counted and x not in known and all(y in known for y in _here(x)):
                if x.op not in ("fold", "dot"):
                    known[x] = self._one(x, place, None, known)

    def fold_start(self, a: Atom) -> tuple[TextOperand, str]:
        """What a fold begins with, and its type."""
        kind, wide = scalar_type(a.dtype), self.across(a) and self.t.lanes > 0
        return self.t.number(reduction(a.kind, a.dtype)[1], a.dtype, wide), self.t.vector(kind) if wide else kind

    def folded(self, a: Atom, total: TextOperand, v: TextOperand) -> TextOperand:
        """A fold's next total."""
        wide = self.t.vector(scalar_type(a.dtype)) if self.across(a) and self.t.lanes else scalar_type(a.dtype)
        return self.t.binary(reduction(a.kind, a.dtype)[0], total, v, wide)

    def _fold(self, a: Atom, place: ElementPlace, sums: Sums | None, known: dict[Atom, TextOperand]) -> TextOperand:
        """A loop of its own; one around it may count the same level, of other indices."""
        (inner,), (loop,) = a.args, a.access
        assert isinstance(loop, LoopAxis)
        t = self.t
        start, kind = self.fold_start(a)
        self.steady(inner, place, sums, known)
        at, (total,), (out,) = t.carried(t.index(0), t.extent(loop.size), t.index(1), [start], [kind])
        same = {x: v for x, v in known.items() if all(at.level != loop.level for at in x.loops)}
        v = self.value(inner, place.counted(loop.level, at), self.across(a), sums, same)
        t.close([self.folded(a, total, v)], [kind])
        return out

    def _over_rows(self, a: Atom, place: ElementPlace, known: dict[Atom, TextOperand]) -> TextOperand:
        """Row after row, in order; what is common to all rows is computed before."""
        t, (inner,), (rows,) = self.t, a.args, a.access
        assert isinstance(rows, LoopAxis)
        for x in order(inner):
            if not x.rows and x not in known:
                known[x] = self._one(x, place, None, known)
        start, kind = self.fold_start(a)
        row, (total,), (out,) = t.carried(t.index(0), t.extent(rows.size), t.index(1), [start], [kind])
        same = {x: v for x, v in known.items() if not x.rows}
        v = self.value(inner, replace(place, row=row), a.cols, None, same)
        t.close([self.folded(a, total, v)], [kind])
        return out

    def _turns(self, a: Atom, place: ElementPlace, known: dict[Atom, TextOperand]) -> TextOperand:
        """The loop of some numbers; all its results are known then."""
        t, inner = self.t, a.inner
        assert inner is not None
        for x in inner.nexts:
            self.steady(x, place, None, known)
        starts = [self.value(x, place, False, None, known) for x in inner.starts]
        kinds = [scalar_type(x.dtype) for x in inner.starts]
        at, inside, out = t.carried(t.index(0), t.extent(inner.turns.size), t.index(1), starts, kinds)
        same = {x: v for x, v in known.items() if all(loop.level != inner.turns.level for loop in x.loops)}
        same |= zip(inner.carried, inside, strict=True)
        same[inner.number] = t.op("arith.index_cast {} : index to {}", at, scalar_type(inner.number.dtype))
        here = place.counted(inner.turns.level, at)
        t.close([self.value(x, here, False, None, same) for x in inner.nexts], kinds)
        known.update(zip(inner.results, out, strict=True))
        return known[a]

    def reduced(self, a: Atom, place: ElementPlace, known: dict[Atom, TextOperand]) -> TextOperand:
        """A loop over the columns with a vector of partial results, then across its lanes."""
        t, (inner,) = self.t, a.args
        self.numbers(inner, place, known, ())
        same = {x: v for x, v in known.items() if not x.cols}
        kind = scalar_type(a.dtype)
        wide = t.vector(kind)
        op, start, word = reduction(a.kind, a.dtype)
        initial = t.number(start, a.dtype, True)
        at, (acc,), (total,) = t.carried(t.index(0), t.index(a.width), t.index(t.lanes), [initial], [wide])
        mask = None
        if a.width % t.lanes:
            left = t.binary("subi", t.index(a.width), at)
            mask = t.mask(left)
        v = self.value(inner, replace(place, col=at, mask=mask), True, None, same)
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


def _here(a: Atom) -> tuple[Atom, ...]:
    """What an atom needs at its place."""
    return () if a.op in WHOLE else a.args


def order(root: Atom, needs: Callable[[Atom], Iterable[Atom]] = _here) -> list[Atom]:
    """The atom's operands before it; by `_here` products, reductions and folds, also over rows, are leaves."""
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
            stack.extend((x, False) for x in needs(a))
    return out


def row_word(e: Evaluator, a: Atom, row: TextOperand, k: TextOperand) -> TextOperand:
    """Word k, four elements, of the computed row that the load `a` reads."""
    assert a.source is not None
    source = MemorySource("words", a.source.index)
    m = e.memories[source]
    return load_scalar(e.t, m, [*e.prefix(source, False), *indices(e.t, a.access, ElementPlace(row, k), m)])


def row_element(e: Evaluator, a: Atom, row: TextOperand, k: TextOperand) -> TextOperand:
    """Element k of the row that the load `a` reads."""
    assert any(isinstance(at, ColumnAxis) for at in a.access)
    return e.load(a, ElementPlace(row, k), False)

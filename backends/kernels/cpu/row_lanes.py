"""Loops of narrow rows: lanes are rows, and columns are counted.

    a Kalman filter of four states, a sum that decays:  16 rows in a vector, not 4 columns or one number

Rows do not meet, so a workgroup takes as many of them as a vector has lanes through all steps before the next ones,
and waits for nobody. Carries and computed rows of these are on the stack, where they stay in the first cache; what
others gave or read, whose rows lie behind each other, is gathered and scattered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from lstm_ir.backends.kernels.body.access import ROW, Access, ColumnAxis, loops_of
from lstm_ir.backends.kernels.body.atoms import Atom, MemorySource
from lstm_ir.backends.kernels.body.plan import Component, KLoop, LoopPlan, Sweep
from lstm_ir.backends.kernels.call.packing import Packed
from lstm_ir.backends.kernels.cpu.register_tile import add_products
from lstm_ir.backends.kernels.cpu.team import RowRange
from lstm_ir.backends.kernels.text.carries import Carries, Element, There
from lstm_ir.backends.kernels.text.evaluate import Evaluator, reduction
from lstm_ir.backends.kernels.text.gather import load_along, store_along
from lstm_ir.backends.kernels.text.memory import ElementPlace, Memory, indices, load_scalar, load_vector, store_vector
from lstm_ir.backends.kernels.text.nests import write_roots
from lstm_ir.backends.kernels.text.statements import MemRef, TextOperand
from lstm_ir.backends.kernels.text.steps import TimeStep
from lstm_ir.backends.kernels.text.text import Text, scalar_type, stored_type
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType


@dataclass(frozen=True)
class LaneMemory(Memory):
    """Of the rows that are lanes alone: an element's lanes lie behind each other, in the place of the axis `axis`."""

    axis: int

    def at(self, t: Text, where: Sequence[TextOperand]) -> Sequence[TextOperand]:
        """Without the row."""
        return [*where[: self.axis], *where[self.axis + 1 :], t.index(0)]


def _loaded(t: Text, m: Memory, at: list[TextOperand], axis: int, place: ElementPlace) -> TextOperand:
    """An element of all rows, as it is stored; the rows' axis is that of the memory's."""
    return load_vector(t, m, m.at(t, at)) if isinstance(m, LaneMemory) else load_along(t, m, at, axis, place.mask)


def _stored(t: Text, v: TextOperand, m: Memory, at: list[TextOperand], axis: int, place: ElementPlace) -> None:
    """What `_loaded` gives."""
    if isinstance(m, LaneMemory):
        store_vector(t, v, m, m.at(t, at))
    else:
        store_along(t, v, m, at, axis, place.mask)


class LaneElement(Element):
    """One element of all rows."""

    def load(self, t: Text, there: There) -> TextOperand:
        """As it is stored."""
        return _loaded(t, there.memory, *self._where(t, there), self.place)

    def store(self, t: Text, v: TextOperand, there: There) -> None:
        """What `load` gives."""
        _stored(t, v, there.memory, *self._where(t, there), self.place)

    def _where(self, t: Text, there: There) -> tuple[list[TextOperand], int]:
        """The first row's element, and the axis of rows."""
        at = [*there.first, *indices(t, self.access, self.place, there.memory)]
        return at, len(there.first) + self.access.index(ROW)


class LaneEvaluator(Evaluator):
    """Atoms of all lanes' rows at once, at one column. The mask of a place says which rows there are."""

    def across(self, a: Atom) -> bool:
        """Lanes are rows."""
        return a.rows

    def load(self, a: Atom, place: ElementPlace, wide: bool) -> TextOperand:
        """A load: of all rows, or one number for them."""
        return super().load(a, place, ROW in a.access)

    def read(
        self, m: Memory, at: list[TextOperand], first: int, access: Access, place: ElementPlace, wide: bool
    ) -> TextOperand:
        """Of all rows, or one number."""
        return _loaded(self.t, m, at, first + access.index(ROW), place) if wide else load_scalar(self.t, m, at)

    def write(
        self, v: TextOperand, m: Memory, at: list[TextOperand], first: int, access: Access, place: ElementPlace,
        wide: bool,
    ) -> None:  # fmt: skip
        """Of all rows."""
        _stored(self.t, v, m, at, first + access.index(ROW), place)

    def reduced(self, a: Atom, place: ElementPlace, known: dict[Atom, TextOperand]) -> TextOperand:
        """A loop over the columns."""
        t, (inner,) = self.t, a.args
        self.numbers(inner, place, known, ())
        same = {x: v for x, v in known.items() if not x.cols}
        op, start, _ = reduction(a.kind, a.dtype)
        wide, kind = self.across(a), scalar_type(a.dtype)
        kind = t.vector(kind) if wide else kind
        initial = t.number(start, a.dtype, wide)
        at, (acc,), (total,) = t.carried(t.index(0), t.index(a.width), t.index(1), [initial], [kind])
        v = self.value(inner, replace(place, col=at), wide, None, same)
        t.close([t.binary(op, acc, v, kind)], [kind])
        return total


@dataclass
class LaneLoop:
    """Writes one component, for some rows. `memories`: all but carries and computed rows."""

    t: Text
    plan: LoopPlan
    component: Component
    memories: Mapping[MemorySource, Memory]
    packed: Mapping[tuple[Sweep, int], Packed]
    init: Sequence[Memory | float]
    finals: Sequence[Memory | None]
    rows: RowRange

    def __post_init__(self) -> None:
        own = {source: self._memory(source, *form) for source, form in stack_forms(self.plan, self.component).items()}
        self.memories = {**self.memories, **own}

    def _memory(self, source: MemorySource, dtype: DType, sizes: tuple[Dim, ...], axis: int) -> LaneMemory:
        """Of a carry there are two: the one that a step reads, and the one it writes."""
        twice = (2,) if source.kind == "carry" else ()
        whole, element = (*twice, *map(as_int, sizes), self.t.lanes), stored_type(dtype)
        return LaneMemory(self.t.stack(MemRef(whole, element)).text, element, whole, len(twice) + axis)

    def write(self, steps: TextOperand, length: TextOperand | None, turned: Mapping[MemorySource, TextOperand]) -> None:
        """All steps; length: of stacked rows, where fewer steps may run. turned: flags of what goes the other way."""
        t, (low, high) = self.t, self.rows
        last = t.binary("subi", steps, t.index(1))
        with t.loop(low, high, t.index(t.lanes)) as row:
            mask = None
            if not isinstance(self.plan.rows, int) or self.plan.rows % t.lanes:
                mask = t.mask(t.binary("subi", high, row))
            place = ElementPlace(row, None, mask)
            carries = LaneCarries(t, self.plan, self.memories, self.component, place)
            carries.begin(self.init)
            with t.loop(t.index(0), steps, t.index(1)) as at:
                self._step(TimeStep.make(t, at, last), place, turned)
            carries.end(self.finals, steps)
            if length is not None:
                carries.zero_rest(steps, length)

    def _step(self, step: TimeStep, place: ElementPlace, turned: Mapping[MemorySource, TextOperand]) -> None:
        rows = {m: self.t.select(flag, step.back, step.at) for m, flag in turned.items()}
        e = step.evaluator(self.t, self.plan, self.memories, rows, LaneEvaluator)
        for sweep in self.component.sweeps:
            with each_column(self.t, sweep.width, place) as here:
                totals = self._totals(e, sweep, here)
                write_roots(e, sweep.roots, here, True, totals.__getitem__, {})

    # -- products

    def _totals(self, e: Evaluator, sweep: Sweep, place: ElementPlace) -> dict[Atom, TextOperand]:
        """The products of a column."""
        totals: dict[int, TextOperand] = {}
        for number, loop in enumerate(sweep.loops):
            self._pass(e, sweep, loop, self.packed[sweep, number], place, totals)
        return {sweep.dots[i]: v for i, v in totals.items()}

    def _pass(
        self, e: Evaluator, sweep: Sweep, loop: KLoop, packed: Packed, place: ElementPlace,
        totals: dict[int, TextOperand],
    ) -> None:  # fmt: skip
        """Adds the products of one row of operands."""
        t, gates = self.t, [i for i, _ in loop.gates]
        dtype = sweep.dots[gates[0]].dtype
        element, zero = scalar_type(dtype), t.number(0.0, dtype, True)
        kind = t.vector(element)
        assert place.col is not None
        k, inside, out = t.carried(
            t.index(0), t.index(loop.length), t.index(1), [totals.get(i, zero) for i in gates], [kind] * len(gates)
        )
        row = replace(place, col=k)
        x = e.ops.convert(e.widened(loop.row, e.load(loop.row, row, True), row), loop.row.dtype, dtype, True)
        sums = dict(zip(gates, inside, strict=True))
        for n, (i, matrix) in enumerate(loop.gates):
            weight = packed.memory.load(t, [place.col, t.add(k, packed.first), t.index(n)])
            add_products(t, sums, e.ops.convert(weight, matrix.value.dtype, dtype, False), {i: x}, element)
        t.close([sums[i] for i in gates], [kind] * len(gates))
        totals.update(zip(gates, out, strict=True))
        if loop.mask is not None:
            there = e.value(loop.mask, replace(place, col=None), True, None, {})
            for i in gates:
                clear = "arith.select {}, {}, {} : {}, {}"
                totals[i] = t.op(clear, there, totals[i], zero, t.vector("i1"), kind)


@dataclass
class LaneCarries(Carries):
    """Those of one vector's rows."""

    place: ElementPlace

    @contextmanager
    def elements(self, v: Value, access: Access) -> Iterator[Element]:
        """Column by column."""
        t, place = self.t, self.place
        with ExitStack() as nest:
            for at in loops_of(access):
                index = nest.enter_context(t.loop(t.index(0), t.extent(at.size), t.index(1)))
                place = place.counted(at.level, index)
            width = as_int(v.shape[-1]) if any(isinstance(at, ColumnAxis) for at in access) else 0
            yield LaneElement(access, nest.enter_context(each_column(t, width, place)), True)


@contextmanager
def each_column(t: Text, width: int, place: ElementPlace) -> Iterator[ElementPlace]:
    """Column by column; once, for numbers of each row."""
    if not width:
        yield place
        return
    with t.loop(t.index(0), t.index(width), t.index(1)) as col:
        yield replace(place, col=col)


def as_int(d: Dim) -> int:
    """A size that is a number."""
    assert isinstance(d, int)
    return d


StackForm = tuple[DType, tuple[Dim, ...], int]


def stack_forms(plan: LoopPlan, c: Component) -> dict[MemorySource, StackForm]:
    """Carries and computed rows of a component: elements, sizes but that of rows, and where these stood."""
    roots = [r for s in c.sweeps for r in s.roots]
    out: dict[MemorySource, StackForm] = {}
    for i, static in c.carries:
        axis, v = plan.access(plan.carries[i], static).index(ROW), plan.carries[i]
        out[MemorySource("carry", i)] = (v.dtype, (*v.shape[:axis], *v.shape[axis + 1 :]), axis)
    made = {r.dest.index for r in roots if r.dest.kind == "temp"}
    for temp in plan.temps:
        if temp.index in made:
            counts = [at.room for at in temp.loops]
            sizes = (*counts, temp.width) if temp.width else tuple(counts)
            out[MemorySource("temp", temp.index)] = (temp.atom.dtype, sizes, temp.access.index(ROW))
    return out

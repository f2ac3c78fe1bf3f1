"""Loops whose columns do not wait for each other: columns outermost, some steps inside, carries in registers.

Without products and sums a column needs of the carries its own columns alone. So a workgroup takes some rows and some
blocks of columns through all steps and waits for nobody: one row is shared out as many are. Steps are taken STEPS at a
time: a block of columns touches as many pages of every tensor, which the next block finds in the processor's tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lstm_ir.backends.kernels.body.access import Access
from lstm_ir.backends.kernels.body.atoms import WHOLE, Atom, MemorySource
from lstm_ir.backends.kernels.body.plan import Component, LoopPlan, Root, Sweep, walk
from lstm_ir.backends.kernels.cpu.machine import COLUMN_OPS, COLUMN_STEPS, COLUMN_TENSORS, COLUMN_VECTORS
from lstm_ir.backends.kernels.text.evaluate import Evaluator
from lstm_ir.backends.kernels.text.memory import ElementPlace, Memory
from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.steps import TimeStep
from lstm_ir.backends.kernels.text.text import Text, scalar_type
from lstm_ir.backends.memory import LINE

_OF_STEPS = ("scan", "projection", "stack")
_TOGETHER = (*WHOLE, "pick")


def apart(plan: LoopPlan) -> bool:
    """Whether every column of every component keeps to itself, and few enough tensors have a row for each step."""
    if plan.temps or not plan.carries or plan.loop.length == 1 or plan.one_chunk:
        return False
    return all(_keeps_to_itself(c) for c in plan.components)


def _keeps_to_itself(c: Component) -> bool:
    if len(c.sweeps) != 1 or c.sweeps[0].own or c.sweeps[0].width == 0:
        return False
    roots = c.sweeps[0].roots
    places = {(r.dest, r.access) for r in roots}
    atoms = list(dict.fromkeys(a for r in roots for a in walk(r.atom)))
    if any(a.op in _TOGETHER or a.loops for a in atoms) or any(r.loops for r in roots):
        return False
    read = [a for a in atoms if a.source is not None and a.source.kind in _OF_STEPS]
    scanned = {(a.source, a.access if a.cols else ()) for a in read}  # numbers of a row lie side by side
    if len(scanned) + sum(r.dest.kind in _OF_STEPS for r in roots) > COLUMN_TENSORS:
        return False
    return all((a.source, a.access) in places for a in atoms if _is_carry(a))


def _is_carry(a: Atom) -> bool:
    return a.source is not None and a.source.kind == "carry"


def vectors(sweep: Sweep, lanes: int) -> int:
    """Vectors of a block: a line of the cache at least, and several where a step has little to do, so that they do not
    wait for one another."""
    ops = len({a for r in sweep.roots for a in walk(r.atom) if a.args})
    blocks = -(-sweep.width // lanes)
    line = LINE // (lanes * max(r.atom.dtype.bytes for r in sweep.roots))
    return next(q for q in COLUMN_VECTORS if q == 1 or (q <= blocks and (q <= line or q * ops <= COLUMN_OPS)))


@dataclass
class ColumnLoop:
    """Writes one component, for some rows and one member's blocks of columns."""

    t: Text
    plan: LoopPlan
    component: Component
    memories: Mapping[MemorySource, Memory]
    init: Sequence[Memory | float]
    finals: Sequence[Memory | None]
    rows: tuple[TextOperand, TextOperand]
    blocks: tuple[TextOperand, TextOperand]
    q: int

    def __post_init__(self) -> None:
        (self.sweep,) = self.component.sweeps
        self.carries = [r for r in self.sweep.roots if r.dest.kind == "carry"]
        self.stacked = [r for r in self.sweep.roots if r.dest.kind == "stack"]
        self.loads: dict[tuple[MemorySource | None, Access], Atom] = {
            (a.source, a.access): a for r in self.sweep.roots for a in walk(r.atom) if _is_carry(a)
        }

    def write(self, steps: TextOperand, length: TextOperand | None, rows: Mapping[MemorySource, TextOperand]) -> None:
        """All steps; length: of stacked rows, where fewer steps may run. rows: as `TimeStep.evaluator`."""
        t = self.t
        self._everywhere(self._begin)
        last = t.binary("subi", steps, t.index(1))
        with t.loop(t.index(0), steps, t.index(COLUMN_STEPS)) as first:
            end = t.binary("minui", t.binary("addi", first, t.index(COLUMN_STEPS)), steps)
            self._everywhere(lambda places: self._steps(places, first, end, last, rows))
        self._everywhere(lambda places: self._end(places, steps, length))

    def _everywhere(self, one: Callable[[list[ElementPlace]], None]) -> None:
        """Every row, and of it every block."""
        t = self.t
        with t.loop(*self.rows, t.index(1)) as row, t.loop(*self.blocks, t.index(1)) as block:
            first = t.binary("muli", block, t.index(t.lanes * self.q))
            places = []
            for v in range(self.q):
                col = t.add(first, v * t.lanes)
                mask = None
                if self.sweep.width % (t.lanes * self.q):
                    left = t.binary("maxsi", t.binary("subi", t.index(self.sweep.width), col), t.index(0))
                    mask = t.mask(left)
                places.append(ElementPlace(row, col, mask))
            one(places)

    def _of(self, memories: Mapping[MemorySource, Memory], first: Sequence[TextOperand] = ()) -> Evaluator:
        """Loads and stores of carries in some memory."""
        return Evaluator(self.t, memories, lambda m, store: list(first), self.t.index(0))

    def _kept(self) -> Evaluator:
        return self._of(self.memories, [self.t.index(0)])

    def _load(self, e: Evaluator, r: Root, place: ElementPlace) -> TextOperand:
        return e.load(Atom("load", r.atom.dtype, source=r.dest, access=r.access), place, True)

    def _store(self, e: Evaluator, v: TextOperand, r: Root, place: ElementPlace) -> None:
        e.store(v, r.atom.dtype, r.dest, r.access, place, True)

    def _begin(self, places: Sequence[ElementPlace]) -> None:
        for r in self.carries:
            first = self.init[r.dest.index]
            for place in places:
                if isinstance(first, Memory):
                    v = self._load(self._of({r.dest: first}), r, place)
                else:
                    v = self.t.number(first, r.atom.dtype, True)
                self._store(self._kept(), v, r, place)

    def _steps(
        self, places: Sequence[ElementPlace], first: TextOperand, end: TextOperand, last: TextOperand,
        rows: Mapping[MemorySource, TextOperand],
    ) -> None:  # fmt: skip
        t, kept = self.t, self._kept()
        pairs = [(r, place) for place in places for r in self.carries]
        kinds = [t.vector(scalar_type(r.atom.dtype)) for r, _ in pairs]
        start = [self._load(kept, r, place) for r, place in pairs]
        if not pairs:
            with t.loop(first, end, t.index(1)) as at:
                self._step(places, at, last, rows, [])
            return
        at, inside, out = t.carried(first, end, t.index(1), start, kinds)
        t.close(self._step(places, at, last, rows, inside), kinds)
        for (r, place), v in zip(pairs, out, strict=True):
            self._store(kept, v, r, place)

    def _step(
        self, places: Sequence[ElementPlace], at: TextOperand, last: TextOperand,
        rows: Mapping[MemorySource, TextOperand], inside: Sequence[TextOperand],
    ) -> list[TextOperand]:  # fmt: skip
        """One step: its rows are stored, its carries given."""
        step = TimeStep.make(self.t, at, last)
        e = step.evaluator(self.t, self.plan, self.memories, self._turned(rows, step))
        new: list[TextOperand] = []
        n = len(self.carries)
        for i, place in enumerate(places):
            known = self._known(inside[i * n : (i + 1) * n])
            values = {r: e.value(r.atom, place, True, None, known) for r in self.sweep.roots}
            for r in self.stacked:
                self._store(e, values[r], r, place)
            new += [values[r] for r in self.carries]
        return new

    def _turned(self, rows: Mapping[MemorySource, TextOperand], step: TimeStep) -> dict[MemorySource, TextOperand]:
        """Row numbers by flags that say which way."""
        return {m: self.t.select(flag, step.back, step.at) for m, flag in rows.items()}

    def _known(self, registers: Sequence[TextOperand]) -> dict[Atom, TextOperand]:
        held = zip(self.carries, registers, strict=True)
        return {a: v for r, v in held if (a := self.loads.get((r.dest, r.access))) is not None}

    def _end(self, places: Sequence[ElementPlace], steps: TextOperand, length: TextOperand | None) -> None:
        t = self.t
        for r in self.carries:
            to = self.finals[r.dest.index]
            for place in places if to is not None else ():
                self._store(self._of({r.dest: to}), self._load(self._kept(), r, place), r, place)  # type: ignore[dict-item]
        if length is None or not self.stacked:
            return
        with t.loop(steps, length, t.index(1)) as at:
            e = self._of(self.memories, [at])
            for r in self.stacked:
                for place in places:
                    self._store(e, t.number(0, r.atom.dtype, True), r, place)

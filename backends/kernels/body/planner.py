"""From a scan's body to its plan: windows, accumulators, scratch rows, components."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from lstm_ir.backends.kernels.body import instead, tuned
from lstm_ir.backends.kernels.body.access import (
    ROW,
    Access,
    ColumnAxis,
    PieceBoundaryError,
    RefusedError,
    TurnBoundaryError,
    TwoOrdersError,
    leading_indices,
    loops_of,
)
from lstm_ir.backends.kernels.body.atoms import Atom, MemorySource
from lstm_ir.backends.kernels.body.forms import ProductForms
from lstm_ir.backends.kernels.body.meeting_rows import MeetingRows, candidates
from lstm_ir.backends.kernels.body.plan import Component, LoopPlan, Root, UntilCarry, below, sweeps_of, walk
from lstm_ir.backends.kernels.body.pull import Puller
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.reach import unreached
from lstm_ir.ir.types import DType

PLAIN = ProductForms()
UNALIGNED = (PieceBoundaryError, TurnBoundaryError, RecursionError)
"""A body is too deep, or its columns do not align."""


def make_plan(
    n: Node, hoist: bool, forms: ProductForms = PLAIN, ending: UntilCarry | None = None,
    decided: frozenset[Node] = frozenset(),
) -> LoopPlan:  # fmt: skip
    """The plan of a `scan`, or RefusedError with the op that stands in the way.

    hoist: products of scanned rows are made before the loop, for all steps at once.
    forms: which products the processor's kernels have. ending: by what the steps compute; then all of a step belongs
    together. decided: nodes whose values decide something; their products round, and sums are made once.
    """
    refused: Exception | None = None
    axes = (-2, 0) if any(v.rank > 2 for v in Loop(n).body.outputs) else (-2,)
    for row_axis in axes:
        try:
            return _planned(n, row_axis, hoist, forms, ending, decided)
        except (RefusedError, *UNALIGNED) as why:
            refused = refused or why
    if forms.teams:
        met: Exception | None = None
        for meeting in (m for row_axis in axes for m in candidates(n, row_axis)):
            try:
                return _planned(n, meeting.row_axis, hoist, forms, ending, decided, meeting)
            except RefusedError as why:
                if meeting.met:
                    met = met or why
            except UNALIGNED:  # the reason of the usual way is a better one
                continue
        refused = met or refused
    if forms.loops and _is_small(n):
        with suppress(RefusedError, *UNALIGNED):
            return _planned(n, None, hoist, forms, ending, decided)
    assert refused is not None
    raise refused


def _planned(
    n: Node, row_axis: int | None, hoist: bool, forms: ProductForms, ending: UntilCarry | None,
    decided: frozenset[Node], meeting: MeetingRows | None = None,
) -> LoopPlan:  # fmt: skip
    """A plan in which each sum that decides something has one order: term by term, where another one would not do."""
    by_terms: frozenset[Node] = frozenset()
    while True:
        try:
            return _Planner(n, row_axis, hoist, forms, ending, decided, by_terms, meeting).plan()
        except TwoOrdersError as why:
            if why.node in by_terms or why.node not in n.attrs["body"].nodes:
                raise
            by_terms |= {why.node}


def _is_small(n: Node) -> bool:
    """Whether one row may hold all that a step gives, which one worker then computes."""
    sizes = [dims.product(v.shape) for v in Loop(n).body.outputs]
    return all(isinstance(k, int) and k <= tuned.ONE_ROW for k in sizes)


class _Planner:
    def __init__(
        self, n: Node, row_axis: int | None, hoist: bool, forms: ProductForms, ending: UntilCarry | None,
        decided: frozenset[Node], by_terms: frozenset[Node], meeting: MeetingRows | None = None,
    ) -> None:  # fmt: skip
        self.node, self.row_axis, self.ending, self.meeting = n, row_axis, ending, meeting
        loop = Loop(n)
        self.body = body = loop.body
        self.carries, self.scanned = loop.carry_params, loop.x_params
        sources: dict[Value, MemorySource | None] = {loop.step: None}
        sources |= {p: MemorySource("value", 0, p) for p in loop.const_params}
        sources |= {p: MemorySource("carry", i) for i, p in enumerate(self.carries)}
        sources |= {p: MemorySource("scan", i) for i, p in enumerate(self.scanned)}
        self.rows: Dim = 1 if row_axis is None else self._row_size() if meeting is None else meeting.size
        invariant = unreached(body, loop.varying)
        self.puller = Puller(
            body=body, carries=self.carries, sources=sources, invariant=invariant, rows=self.rows,
            row_axis=0 if row_axis is None else row_axis, hoist=hoist, forms=forms, decided=decided,
            by_terms=by_terms, meeting=meeting,
        )  # fmt: skip

    def plan(self) -> LoopPlan:
        p = self.puller
        one_flag = self.ending is not None and not self.carries[self.ending.carry].rank
        if self.ending is not None and one_flag and self.rows != 1 and self.meeting is None:
            flag = self.ending.of.attrs["body"].outputs[self.ending.carry]
            raise RefusedError("its steps say for all rows together when it ends (until)", flag, instead.KNOWN_END)
        if self.ending is not None and not one_flag:
            self._need_a_flag_for_each_row(self.carries[self.ending.carry])
        roots = [r for out in self._outputs() for r in self._roots(*out)]
        roots = self._matched(roots)
        p.numbers.inline(roots, p.rebuilt)
        self._add_temps(roots, set())
        if self.meeting is not None:
            self._read_again(roots)
        self._merge(roots)
        self._spill(roots)
        self._mark_own(roots)
        used = [p.temps[r.dest.index] for r in roots if r.dest.kind == "temp"]
        n_carries = len(self.carries)
        return LoopPlan(
            self.node, self.body, self.rows, self._components(roots), used,
            self.carries, self.scanned,
            self.body.outputs[n_carries:], p.projections, p.cuts, self._rounds(), self.ending, self.meeting is not None,
        )  # fmt: skip

    def _need_a_flag_for_each_row(self, ended: Value) -> None:
        """The kernel looks at the flags of its rows: of another axis it would look at some, or at none."""
        if ended.shape[0] != self.rows or (self.meeting is not None and self.meeting.common(ended)):
            raise RefusedError(
                f"flags of {ended.shape[0]} (until) beside rows of {self.rows}", write=instead.MIXED_ROWS
            )

    def _rounds(self) -> bool:
        """Whether products round: something of the body decides."""
        return any(n in self.puller.decided for n in self.body.nodes)

    # -- results

    def _row_size(self) -> Dim:
        assert self.row_axis is not None
        sizes = {v.shape[self.row_axis] for v in self.body.outputs if v.rank > 1}
        if len(sizes) > 1:
            shown = ", ".join(sorted(map(str, sizes)))
            raise RefusedError(f"results with different numbers of rows: {shown}", write=instead.MIXED_ROWS)
        if sizes:
            only: Dim = sizes.pop()
            return only
        numbers = {v.shape for v in self.body.outputs}
        size: Dim = numbers.pop()[0] if len(numbers) == 1 and self.body.outputs[0].rank else 1
        return 1 if isinstance(size, int) else size  # no columns have a named size: they are numbers of rows

    def _outputs(self) -> Iterator[tuple[MemorySource, Value]]:
        for i, v in enumerate(self.body.outputs):
            k = i - len(self.carries)
            yield (MemorySource("carry", i) if k < 0 else MemorySource("stack", k)), v

    def _roots(self, dest: MemorySource, v: Value) -> list[Root]:
        common = self.meeting is not None and self.meeting.common(v)
        if v.rank == 0 and (self.rows == 1 or common):
            return [self._root(dest, v, (), 0)]
        if v.rank == 0:
            raise RefusedError("a result without rows or columns", v, instead.MIXED_ROWS)
        if any(d == 0 for d in v.shape):
            raise RefusedError("a result without elements", v, instead.NO_ELEMENTS)
        one = self.rows == 1 and (v.shape[0] != 1 or all(o.rank < 2 for o in self.body.outputs))
        one |= self.row_axis is None
        if v.rank == 1 and not one and not common:
            if v.shape[0] != self.rows:
                raise RefusedError(
                    f"a result of {v.shape[0]} elements beside rows of {self.rows}", v, instead.MIXED_ROWS
                )
            return [self._root(dest, v, (ROW,), 0)]
        row = None if self.row_axis is None or v.rank < 2 or common else self.row_axis % v.rank
        width = v.shape[-1]
        if not isinstance(width, int) or (common and width == 1):
            width = 0  # no columns: numbers of which a loop counts one axis
        leading = [a for a in range(v.rank - (width > 0)) if a != row]
        sizes = [v.shape[a] for a in leading]
        out: list[Root] = []
        for static in leading_indices(sizes):
            access: list[Any] = [ROW] * v.rank
            for a, i in zip(leading, static, strict=True):
                access[a] = i
            out += self._turns(dest, v, access, width)
        return out

    def _turns(self, dest: MemorySource, v: Value, access: list[Any], width: int) -> list[Root]:
        """Where pieces are joined along an axis that a loop counts there is a loop for each."""
        todo, done = [tuple(access)], list[Root]()
        while todo:
            here = todo.pop()
            try:
                done += self._windows(dest, v, here, width) if width else [self._root(dest, v, here, 0)]
            except TurnBoundaryError as boundary:
                todo += reversed(boundary.parts(here, self.puller.cut))
        return done

    def _windows(self, dest: MemorySource, v: Value, access: Access, width: int) -> list[Root]:
        todo, done = [(0, width)], []
        while todo:
            start, size = todo.pop()
            try:
                done.append(self._root(dest, v, (*access[:-1], ColumnAxis(start)), size))
            except PieceBoundaryError as cut:
                todo += [(start + cut.offset, size - cut.offset), (start, cut.offset)]
        return done

    def _root(self, dest: MemorySource, v: Value, access: Access, width: int) -> Root:
        atom = self.puller.pull(v, access, width)
        common = self.meeting is not None and ROW not in access
        return Root(dest, access, atom if common else self.puller.once(atom, width), width, common=common)

    def _matched(self, roots: list[Root]) -> list[Root]:
        """Wide results are cut to the width of others that read the same products."""
        out: list[Root] = []
        for r in roots:
            shared = self._products(r.atom)
            others = [o.width for o in roots if 0 < o.width < r.width and shared & self._products(o.atom)]
            part = max((w for w in others if r.width % w == 0 and r.width // w <= 8), default=0)
            if not part or r.dest.kind == "temp":
                out.append(r)
                continue
            v = self._value_of(r.dest)
            first = r.access[-1]
            assert isinstance(first, ColumnAxis)
            for start in range(0, r.width, part):
                out.append(self._root(r.dest, v, (*r.access[:-1], ColumnAxis(first.start + start)), part))
        return out

    def _products(self, a: Atom) -> set[tuple[Atom, Value]]:
        """Rows and matrices that meet in an atom; where rows meet, in the computed rows that it reads too."""
        if not a.has_dot and self.meeting is None:
            return set()
        atoms = [*walk(a)]
        seen = {*atoms}
        for x in atoms if self.meeting is not None else ():
            if x.source is not None and x.source.kind == "temp":
                atoms += walk(self.puller.temps[x.source.index].atom, seen)
        return {(t.row, t.matrix.value) for x in atoms for t in x.terms}

    def _value_of(self, dest: MemorySource) -> Value:
        first = len(self.carries) if dest.kind == "stack" else 0
        out: Value = self.body.outputs[dest.index + first]
        return out

    # -- scratch rows

    def _add_temps(self, roots: list[Root], seen: set[Atom]) -> None:
        """Those that the roots read, as further roots; what is `seen` reads none that is missing."""
        have = {r.dest.index for r in roots if r.dest.kind == "temp"}
        i = 0
        while i < len(roots):
            for a in walk(roots[i].atom, seen):
                if a.source is not None and a.source.kind == "temp" and a.source.index not in have:
                    have.add(a.source.index)
                    temp = self.puller.temps[a.source.index]
                    source = MemorySource("temp", temp.index)
                    roots.append(Root(source, temp.access, temp.atom, temp.width, common=temp.common))
            i += 1

    def _read_again(self, roots: list[Root]) -> None:
        """What is kept for a sum over the rows is read by later phases."""
        for r in roots:
            phase, width = r.atom.phase, r.width
            r.atom = self.puller.rebuilt(r.atom, {}, lambda a: self.puller.read_again(a, width, phase))  # noqa: B023
            if r.dest.kind == "temp":
                self.puller.temps[r.dest.index].atom = r.atom

    def _merge(self, roots: list[Root]) -> None:
        """Products that are only added up become one accumulator."""
        uses: Counter[Atom] = Counter(r.atom for r in roots)
        for a in {a for r in roots for a in walk(r.atom)}:
            uses.update(below(a))
        done: dict[Atom, Atom] = {}
        for r in roots:
            r.atom = self.puller.rebuilt(r.atom, done, lambda a: self._sum(a, uses, done))
            if r.dest.kind == "temp":
                self.puller.temps[r.dest.index].atom = r.atom

    def _sum(self, a: Atom, uses: Counter[Atom], done: dict[Atom, Atom]) -> Atom | None:
        if a.op != "add" or not a.dtype.is_float:
            return None
        leaves = list(_leaves(a, uses))
        dots = [d for d in leaves if d.op == "dot" and uses[d] == 1 and d.phase == a.phase]
        masks = {t.mask for d in dots for t in d.terms if t.mask is not None}
        if len(dots) < 2 or len(masks) > 1:
            return None
        total = self.puller.dot(tuple(t for d in dots for t in d.terms), a.dtype)
        for other in leaves:
            if other not in dots:
                kept = self.puller.rebuilt(other, done, lambda x: self._sum(x, uses, done))
                total = self.puller.elementwise("add", a.dtype, (total, kept), None)
        return total

    def _spill(self, roots: list[Root]) -> None:
        """What an earlier phase computed with a product is kept, not computed again."""
        done: dict[tuple[Atom, int, int], Atom] = {}
        seen: set[Atom] = set()
        i = 0
        while i < len(roots):
            r = roots[i]
            phase, width = r.atom.phase, r.width

            def kept(a: Atom, phase: int = phase, width: int = width) -> Atom | None:
                if not a.has_dot or a.phase >= phase:
                    return None
                key = (a, phase, width)
                if key not in done:
                    done[key] = self.puller.temp_load(self.puller.temp(a, width if a.cols else 0))
                return done[key]

            r.atom = self.puller.rebuilt(r.atom, {}, kept)
            if r.dest.kind == "temp":
                self.puller.temps[r.dest.index].atom = r.atom
            self._add_temps(roots, seen)
            i += 1

    def _mark_own(self, roots: list[Root]) -> None:
        """Rows of int8, and what they are made of, where no product is in it."""
        made = {r.dest.index: r for r in roots if r.dest.kind == "temp" and not r.atom.has_dot}
        todo = [r for r in made.values() if r.atom.dtype is DType.i8]
        while todo:
            r = todo.pop()
            r.own = True
            read = {a.source.index for a in walk(r.atom) if a.source is not None and a.source.kind == "temp"}
            todo += [made[i] for i in read & made.keys() if not made[i].own]

    # -- order

    def _components(self, roots: list[Root]) -> list[Component]:
        groups = _Union(roots)
        carried = [(r.dest.index, r) for r in roots if r.dest.kind == "carry"]
        self._counted = {i for i, r in carried if loops_of(r.access)}
        self._statics = {i: {r.static for j, r in carried if j == i} for i, _ in carried}
        first: dict[Any, Root] = {}
        for r in roots:
            for key in self._touched(r):
                groups.join(r, first.setdefault(key, r))
            if self.ending is not None:
                groups.join(r, roots[0])
        out: list[Component] = []
        for members in groups.sets():
            written = [(r.dest.index, r.static) for r in members if r.dest.kind == "carry"]
            out.append(Component(sweeps_of(members), list(dict.fromkeys(written))))
        return out

    def _touched(self, r: Root) -> Iterator[Any]:
        """What makes results belong to one component: carries, computed rows, products."""
        if r.dest.kind == "carry":
            yield from self._carries_touched(r.dest.index, r.access)
        elif r.dest.kind == "temp":
            yield ("temp", r.dest.index, ())
        for a in walk(r.atom):
            if a.op == "dot":
                yield a
            elif a.source is not None and a.source.kind == "carry":
                yield from self._carries_touched(a.source.index, a.access)
            elif a.source is not None and a.source.kind == "temp":
                yield ("temp", a.source.index, ())

    def _carries_touched(self, i: int, access: Access) -> Iterator[Any]:
        """Of a carry: one leading index, or all where a loop counts them."""
        if i in self._counted:
            yield ("carry", i, ())
        elif loops_of(access[: -1 if len(access) > 1 else None]):
            yield from (("carry", i, static) for static in self._statics[i])
        else:
            yield ("carry", i, self._leading(access))

    def _leading(self, access: Access) -> tuple[int, ...]:
        """Indices before rows and columns; a column, or the only row, may be a plain index too."""
        others = {len(access) - 1}
        if self.row_axis is not None:
            others.add(self.row_axis % len(access) if len(access) > 1 else 0)
        return tuple(at for i, at in enumerate(access) if i not in others and isinstance(at, int))


def _leaves(a: Atom, uses: Counter[Atom]) -> Iterator[Atom]:
    """Addends of a tree of additions whose inner sums nobody else reads."""
    for x in a.args:
        if x.op == "add" and uses[x] == 1:
            yield from _leaves(x, uses)
        else:
            yield x


class _Union:
    def __init__(self, roots: list[Root]) -> None:
        self.roots = roots
        self.parent: dict[Root, Root] = {r: r for r in roots}

    def find(self, r: Root) -> Root:
        while self.parent[r] is not r:
            r = self.parent[r]
        return r

    def join(self, a: Root, b: Root) -> None:
        a, b = self.find(a), self.find(b)
        if a is not b:
            self.parent[a] = b

    def sets(self) -> list[list[Root]]:
        found: dict[Root, list[Root]] = {}
        for r in self.roots:
            found.setdefault(self.find(r), []).append(r)
        return list(found.values())

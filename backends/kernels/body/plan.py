"""A loop in the order of its work: components, sweeps, results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lstm_ir.backends.kernels.body.access import Access, ColumnAxis, CutTurns, Index, LoopAxis, NamedIndex, loops_of
from lstm_ir.backends.kernels.body.atoms import Atom, Matrix, MemorySource, ProductTerm, Temp
from lstm_ir.backends.kernels.body.hoisting import Projection
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim, Expr
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.types import DType

WORD = 4  # int8 elements
PAIR = 2  # bf16 elements of a word


@dataclass(eq=False)
class Root:
    """A result window: `atom` over `width` columns (0: one number per row) goes to `dest`.

    own: each member of a team computes it, for itself, which is less work than to wait for the others: a row that
    becomes int8. common: one for all rows.
    """

    dest: MemorySource  # carry, stack or temp
    access: Access
    atom: Atom
    width: int
    own: bool = False
    common: bool = False

    @property
    def static(self) -> tuple[int, ...]:
        """Leading indices."""
        return static_of(self.access)

    @property
    def loops(self) -> tuple[LoopAxis, ...]:
        """Loops inside of the kernel that count the other leading indices."""
        return loops_of(self.access)


def _whole(at: Index, size: Dim) -> Index:
    """All columns, or all turns, of which an index is a window."""
    if isinstance(at, LoopAxis):
        return LoopAxis(at.level, size)
    return ColumnAxis(0) if isinstance(at, ColumnAxis) else at


def static_of(access: Access) -> tuple[int, ...]:
    """The plain indices of an access."""
    return tuple(at for at in access if isinstance(at, int))


@dataclass(eq=False)
class KLoop:
    """One pass over a row: every (accumulator, matrix) takes row[k] * matrix[k]."""

    row: Atom
    length: int
    mask: Atom | None
    gates: list[tuple[int, Matrix]]
    offset: int = 0  # of int8: elements of the row are kept so much larger
    alike: list[tuple[Atom, list[int]]] = field(default_factory=list)  # rows that meet the same matrices; their sums

    @property
    def rows(self) -> list[Atom]:
        """All rows that meet the matrices."""
        return [self.row, *(row for row, _ in self.alike)]

    @property
    def sums(self) -> list[list[int]]:
        """The accumulators of each row, one for each matrix."""
        return [[i for i, _ in self.gates], *(sums for _, sums in self.alike)]

    @property
    def in_words(self) -> bool:
        """Whether row and matrix are int8, of which four are a word."""
        return self.row.dtype is DType.i8

    @property
    def in_pairs(self) -> bool:
        """Whether weights in bf16 meet a row in f32: two of a column are a word."""
        widened = self.row.dtype is DType.f32 and self.gates[0][1].value.dtype is DType.bf16
        return widened and self.length % PAIR == 0

    @property
    def per_word(self) -> int:
        """Weights of a column that are packed into one element."""
        return WORD if self.in_words else PAIR if self.in_pairs else 1

    @property
    def turns(self) -> int:
        """Packed elements of a column that a pass goes through."""
        return -(-self.length // self.per_word)

    @property
    def packed(self) -> int:
        """What the weights of a column take: behind the words of one comes what its sum begins with."""
        return self.turns + self.in_words


@dataclass(eq=False)
class Sweep:
    """Results of one phase over the same columns."""

    phase: int
    width: int
    roots: list[Root]
    dots: list[Atom] = field(default_factory=list)
    loops: list[KLoop] = field(default_factory=list)

    @property
    def own(self) -> bool:
        """Whether each member of a team computes all of it for itself: see `Root`."""
        return self.roots[0].own

    @property
    def common(self) -> bool:
        """Whether it is computed once, for all rows."""
        return self.roots[0].common


@dataclass(eq=False)
class Component:
    """Sweeps in the order of one step; shares no carry with other components."""

    sweeps: list[Sweep]
    carries: list[tuple[int, tuple[int, ...]]]


class UntilCarry(NamedTuple):
    """Of a loop with `until`, planned as one without: the loop itself, and the carry that says in which step each row's
    flag held."""

    of: Node
    carry: int


@dataclass(eq=False)
class LoopPlan:
    """The whole loop."""

    node: Node
    body: Graph
    rows: Dim
    components: list[Component]
    temps: list[Temp]
    carries: tuple[Value, ...]
    scanned: tuple[Value, ...]
    stacked: tuple[Value, ...]
    projections: list[Projection]
    cuts: Mapping[Expr, CutTurns] = field(default_factory=dict)  # names that the kernel itself knows
    rounds: bool = False  # whether products round before something is added (`decisions.py`)
    ending: UntilCarry | None = None
    meet: bool = False  # rows meet in a step

    @property
    def one_chunk(self) -> bool:
        """Whether members of one team have all rows: they meet in a step, or all say when the loop ends."""
        return self.meet or self.ending is not None

    def join_rest(self) -> None:
        """Results without products go to the component that has all: workers are shared out evenly among components."""
        with_products = [c for c in self.components if any(s.dots for s in c.sweeps)]
        if len(with_products) == 1 < len(self.components):
            roots = [r for c in self.components for s in c.sweeps for r in s.roots]
            carries = [carry for c in self.components for carry in c.carries]
            self.components = [Component(sweeps_of(roots), carries)]

    @property
    def common_carries(self) -> set[int]:
        """Numbers of the carries that are one for all rows."""
        roots = [r for c in self.components for s in c.sweeps if s.common for r in s.roots]
        return {r.dest.index for r in roots if r.dest.kind == "carry"}

    @property
    def own_temps(self) -> set[int]:
        """Numbers of the computed rows of which each member has its own."""
        return {r.dest.index for c in self.components for s in c.sweeps if s.own for r in s.roots}

    @property
    def counted_sizes(self) -> list[Dim]:
        """Named sizes to which loops inside of the kernel count, or from which on."""
        roots = [r for c in self.components for s in c.sweeps for r in s.roots]
        seen: set[Atom] = set()
        found = [r.access for r in roots] + [a.access for r in roots for a in walk(r.atom, seen)]
        sizes = [d for at in found for i in at if isinstance(i, LoopAxis) for d in (i.size, i.start)]
        sizes += [i.place for at in found for i in at if isinstance(i, NamedIndex)]
        sizes += [d for p in (*self.carries, *self.stacked) for d in p.shape]
        sizes += [d for c in self.cuts.values() for d in c]
        none: dict[str, Dim] = {str(c): 0 for c in self.cuts}
        called = [dims.substitute(d, none) for d in sizes]
        return list(dict.fromkeys(d for d in called if not isinstance(d, int)))

    @property
    def loop(self) -> Loop:
        """The scan by the role of each value."""
        return Loop(self.node)

    def access(self, v: Value, static: tuple[int, ...]) -> Access:
        """Where rows and columns of a result stand: as its first window has them."""
        for c in self.components:
            for s in c.sweeps:
                for r in s.roots:
                    if r.static == static and self._result(r.dest) is v:
                        return tuple(map(_whole, r.access, v.shape))
        raise AssertionError("a result without windows")

    def _result(self, dest: MemorySource) -> Value | None:
        if dest.kind == "carry":
            return self.carries[dest.index]
        return self.stacked[dest.index] if dest.kind == "stack" else None


def below(a: Atom) -> list[Atom]:
    """What an atom reads."""
    inside = list(a.args)
    for t in a.terms:
        inside.append(t.row)
        if t.mask is not None:
            inside.append(t.mask)
    return inside


def walk(a: Atom, seen: set[Atom] | None = None) -> Iterator[Atom]:
    """The atom and everything in it, each once; but not what was `seen` before."""
    seen = set() if seen is None else seen
    stack = [a]
    while stack:
        x = stack.pop()
        if x not in seen:
            seen.add(x)
            yield x
            stack.extend(below(x))


def sweeps_of(roots: list[Root]) -> list[Sweep]:
    """The results by phase and width, in order; rows of each member's own, and what is common to all rows, apart."""
    groups: dict[tuple[int, bool, int, bool], list[Root]] = {}
    for r in roots:
        groups.setdefault((r.atom.phase, r.own, r.width, r.common), []).append(r)
    out = []
    for key in sorted(groups):
        (phase, _, width, _), members = key, groups[key]
        dots = _neighbours(dict.fromkeys(a for r in members for a in walk(r.atom) if a.op == "dot"))
        out.append(Sweep(phase, width, members, dots, _joined(_loops(dots))))
    return out


def _neighbours(dots: Iterable[Atom]) -> list[Atom]:
    """Products in order, but sums in i32 of the same matrices behind each other: they load each weight once. So do
    those of one row: a part of them loads each word once."""
    groups: dict[object, list[Atom]] = {}
    places: dict[Atom, int] = {}
    for d in dots:
        words = d.dtype is DType.i32
        groups.setdefault(tuple((t.length, t.matrix) for t in d.terms) if words else d, []).append(d)
        places.setdefault(d.terms[0].row if words else d, len(places))
    of_row = sorted(groups.values(), key=lambda g: places[g[0].terms[0].row if g[0].dtype is DType.i32 else g[0]])
    return [d for group in of_row for d in group]


def _joined(loops: list[KLoop]) -> list[KLoop]:
    """Passes of several rows of int8 over the same matrices are one."""
    found: dict[object, KLoop] = {}
    for loop in loops:
        matrices = tuple(matrix for _, matrix in loop.gates)
        key = (matrices, loop.length, loop.offset) if loop.in_words else loop
        first, sums = found.setdefault(key, loop), [i for i, _ in loop.gates]
        if first is loop:
            continue
        if {*sums}.isdisjoint(i for of_row in first.sums for i in of_row):
            first.alike.append((loop.row, sums))
        else:  # each pass begins its sums
            found[loop] = loop
    return list(found.values())


def _loops(dots: list[Atom]) -> list[KLoop]:
    """Passes over rows, those under a mask first: it clears sums that nothing else touched.

    A sum that takes two products of one row is in two passes: each adds to a sum once.
    """
    found: dict[tuple[Atom, int, Atom | None, DType, int], KLoop] = {}
    terms: list[tuple[int, ProductTerm]] = [(i, t) for i, d in enumerate(dots) for t in d.terms]
    for i, t in terms:
        again = 0
        while True:
            key = (t.row, t.length, t.mask, t.matrix.value.dtype, again)
            loop = found.setdefault(key, KLoop(t.row, t.length, t.mask, [], t.offset))
            if all(sum_ != i for sum_, _ in loop.gates):
                break
            again += 1
        loop.gates.append((i, t.matrix))
    return sorted(found.values(), key=lambda k: k.mask is None)

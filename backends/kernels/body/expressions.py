"""The expressions of a body: makes atoms of each kind, and keeps them in scratch memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from lstm_ir import ops
from lstm_ir.backends.kernels.body import access as ac
from lstm_ir.backends.kernels.body import instead
from lstm_ir.backends.kernels.body.access import Access, ColumnAxis, CutTurns, LoopAxis, RefusedError
from lstm_ir.backends.kernels.body.atoms import Atom, InnerLoop, MemorySource, ProductTerm, Temp
from lstm_ir.backends.kernels.body.meeting_rows import MeetingRows
from lstm_ir.backends.kernels.body.tuned import MAX_CUTS
from lstm_ir.ir.dims import Dim, Expr
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.types import DType

COSTLY = frozenset((
    "divide", "remainder", "power", "exponential", "exponential_minus_one", "log", "log_plus_one", "erf", "logistic",
    "tanh", "sine", "cosine", "sqrt", "rsqrt", "atan2",
))  # fmt: skip
"""Ops of which a number that a loop of the kernel reads again and again is kept."""


@dataclass(eq=False, kw_only=True)
class Expressions:
    """Those of one body; equal ones are one object."""

    carries: tuple[Value, ...]
    invariant: set[Value]
    rows: Dim  # of every result that is not common to all
    row_axis: int  # of values with two axes or more
    meeting: MeetingRows | None = None  # where rows meet
    temps: list[Temp] = field(default_factory=list)
    cuts: dict[Expr, CutTurns] = field(default_factory=dict)
    turned: dict[tuple[Value, int], Value] = field(default_factory=dict)  # what takes the place of values
    _atoms: dict[Any, Atom] = field(default_factory=dict)
    _temp_of: dict[Any, Temp] = field(default_factory=dict)

    def elementwise(self, op: str, dtype: DType, args: tuple[Atom, ...], node: Node | None) -> Atom:
        """An elementwise op over atoms."""
        attrs = () if node is None else tuple(sorted((k, str(v)) for k, v in node.attrs.items()))
        return self._intern(
            (op, dtype, args, attrs), op, dtype, args=args, node=node,
            rows=any(a.rows for a in args), cols=any(a.cols for a in args), loops=_loops(args),
            phase=max((a.phase for a in args), default=0), has_dot=any(a.has_dot for a in args),
        )  # fmt: skip

    def load(self, source: MemorySource, access: Access, dtype: DType) -> Atom:
        """An element of memory."""
        if any(isinstance(a, ColumnAxis) for a in access[:-1]):
            if source.kind != "value" or source.value is None:
                raise RefusedError("columns that are not the last axis in memory", source.value, instead.COLUMNS_LAST)
            value, access = self.columns_last(source.value, access)
            source = replace(source, value=value)
        if source.kind == "carry" and self.rows != 1 and not self._of_row(source, access):
            # Rows are shared out to workgroups that do not wait for each other; a single number has no rows.
            # Where rows meet, a carry that is common to all is read by each.
            raise RefusedError("a row reads another row's carry", write=instead.MIXED_ROWS)
        phase = self.temps[source.index].atom.phase + 1 if source.kind == "temp" else 0
        return self._intern(
            ("load", source, access), "load", dtype, source=source, access=access, phase=phase,
            rows=any(isinstance(a, ac.RowAxis) for a in access),
            cols=any(isinstance(a, ColumnAxis) for a in access), loops=ac.loops_of(access),
        )  # fmt: skip

    def _of_row(self, source: MemorySource, access: Access) -> bool:
        """Whether what is read of a carry is the row's own; or, where rows meet, common to all or of a known row."""
        at = access[self._row_axis(access)] if access else None
        if at == ac.ROW or self.meeting is None:
            return at == ac.ROW
        return self.meeting.common(self.carries[source.index]) or self.meeting.known_row(at)

    def columns_last(self, v: Value, access: Access) -> tuple[Value, Access]:
        """A value that does not change, transposed before the loop so that the columns are its last axis."""
        i = next((i for i, at in enumerate(access) if isinstance(at, ColumnAxis)), len(access) - 1)
        if i == len(access) - 1:
            return v, access
        order = (*(k for k in range(v.rank) if k != i), i)
        turned = self.turned.get((v, i))
        if turned is None:
            turned = self.turned[v, i] = ops.transpose(v, order)
            self.invariant.add(turned)
        return turned, tuple(access[k] for k in order)

    def pick(self, table: Value, access: Access, index: Atom, node: Node) -> Atom:
        """An element of a table that does not change; `index` says which on the axis that is picked."""
        table, access = self.columns_last(table, access)
        source = MemorySource("value", 0, table)
        return self._intern(
            ("pick", source, access, index), "pick", table.dtype, source=source, access=access, args=(index,),
            rows=index.rows or ac.ROW in access, cols=any(isinstance(a, ColumnAxis) for a in access), node=node,
            phase=index.phase, has_dot=index.has_dot, loops=ac.loops_of((*access, *index.loops)),
        )  # fmt: skip

    def fold(self, kind: str, inner: Atom, loop: LoopAxis, node: Node | None = None) -> Atom:
        """The sum, or the extreme, of what a loop inside of the kernel makes."""
        return self._intern(
            ("fold", kind, inner, loop), "fold", inner.dtype, args=(inner,), access=(loop,), kind=kind, node=node,
            rows=inner.rows, cols=inner.cols, phase=inner.phase, has_dot=True,
            loops=tuple(at for at in inner.loops if at.level != loop.level),
        )  # fmt: skip

    def over_rows(self, kind: str, inner: Atom, width: int, node: Node) -> Atom:
        """The sum, or the extreme, over all rows; what costs more than to keep it is kept for each row."""
        phase, made, whole = inner.phase, inner.has_dot, (inner, width if inner.cols else 0)
        inner = self.rebuilt(inner, {}, lambda a: self.read_again(a, width, phase))
        inner = self.rebuilt(inner, {}, lambda a: self._in_memory(a, width) if a.has_dot and a.phase < phase else None)
        if inner.has_dot or (made and any(a.op in COSTLY for a in _below(inner))):
            kept = self._temp_of[whole] = self.temp(inner, whole[1])
            inner = self.temp_load(kept)
        loop = LoopAxis(0, self.rows)
        return self._intern(
            ("over_rows", kind, inner, width), "over_rows", inner.dtype, args=(inner,), access=(loop,), kind=kind,
            node=node, cols=inner.cols, phase=inner.phase, has_dot=True, loops=inner.loops, width=width,
        )  # fmt: skip

    def carried(self, key: Any, dtype: DType, access: Access, loop: LoopAxis) -> Atom:
        """A number that a turn of an inner loop is given."""
        return self._intern(("carried", loop, key), "carried", dtype, rows=ac.ROW in access, loops=(loop,))

    def turns(self, inner: InnerLoop, result: int) -> Atom:
        """A number that an inner loop leaves."""
        args = (*inner.starts, *inner.nexts)
        levels = [at for a in args for at in a.loops if at.level != inner.turns.level]
        return self._intern(
            ("turns", inner, result), "turns", inner.starts[result].dtype, args=args, inner=inner, width=result,
            rows=self._by_row(*args), phase=max(a.phase for a in args), loops=ac.loops_of(levels),
        )  # fmt: skip

    def beside(self, args: tuple[Atom, ...], width: int) -> tuple[Atom, ...]:
        """What an op of each row takes: what is common to all is made once."""
        return tuple(self.once(a, width) for a in args) if any(a.rows for a in args) else args

    def once(self, a: Atom, width: int) -> Atom:
        """What rows read of what is common to all, where it is more than a few ops."""
        return a if self.meeting is None or a.rows or not a.has_dot else self._in_memory(a, width)

    def _in_memory(self, a: Atom, width: int) -> Atom:
        """An atom over so many columns, as what is read of a computed row."""
        return self.temp_load(self.temp(a, width if a.cols else 0))

    def kept(self, a: Atom, width: int) -> Atom | None:
        """What is read of an atom that is in scratch memory."""
        return self._in_memory(a, width) if (a, width if a.cols else 0) in self._temp_of else None

    def read_again(self, a: Atom, width: int, phase: int) -> Atom | None:
        """What a phase reads of an atom that an earlier one keeps."""
        return self.kept(a, width) if a.has_dot and a.phase < phase else None

    def rebuilt(self, a: Atom, done: dict[Atom, Atom], rule: Callable[[Atom], Atom | None]) -> Atom:
        """An atom in which those take their places that the rule gives for others; `done` are known."""
        if a in done:
            return done[a]
        new = rule(a)
        if new is None and a.args:
            args = tuple(self.rebuilt(x, done, rule) for x in a.args)
            new = a if all(x is y for x, y in zip(args, a.args, strict=True)) else self._of_others(a, args)
        done[a] = a if new is None else new
        return done[a]

    def _of_others(self, a: Atom, args: tuple[Atom, ...]) -> Atom:
        """The same of other arguments."""
        if a.op in ("reduce", "turns"):
            raise RefusedError("a reduction of a sum of products", write=instead.OUTSIDE)
        if a.op == "fold":
            (loop,) = a.access
            assert isinstance(loop, LoopAxis)
            return self.fold(a.kind, args[0], loop, a.node)
        if a.op == "over_rows":
            assert a.node is not None
            return self.over_rows(a.kind, args[0], a.width, a.node)
        if a.op == "pick":
            assert a.source is not None
            assert a.source.value is not None
            assert a.node is not None
            return self.pick(a.source.value, a.access, args[0], a.node)
        return self.elementwise(a.op, a.dtype, args, a.node)

    def reduction(self, op: str, inner: Atom, width: int, node: Node) -> Atom:
        """A number for each row: over `width` columns."""
        return self._intern(
            (op, inner, width), "reduce", inner.dtype, args=(inner,), rows=self._by_row(inner), phase=inner.phase,
            width=width, kind=op, node=node, loops=inner.loops,
        )  # fmt: skip

    def _by_row(self, *read: Atom) -> bool:
        """Whether what reads these is one for each row."""
        return self.meeting is None or any(a.rows for a in read)

    def _row_axis(self, access: Access) -> int:
        return self.row_axis % len(access) if len(access) > 1 else 0

    def splat(self, number: float, dtype: DType) -> Atom:
        """A number."""
        return self._intern(("splat", repr(number), dtype), "splat", dtype, number=number)

    def dot(self, terms: tuple[ProductTerm, ...], dtype: DType) -> Atom:
        """A sum of products."""
        masks = [t.mask for t in terms if t.mask is not None]
        phase = max(0, *(t.row.phase for t in terms), *(m.phase for m in masks))
        return self._intern(
            ("dot", terms, dtype), "dot", dtype, terms=terms, phase=phase, cols=True, has_dot=True,
            rows=self._by_row(*(t.row for t in terms), *masks),
        )  # fmt: skip

    def temp(self, atom: Atom, width: int) -> Temp:
        """Scratch memory for a computed row."""
        found = self._temp_of.get((atom, width))
        if found is None:
            if atom.in_turns:
                raise RefusedError("a row in an inner loop", None, instead.of_op("scan"))
            common = not self._by_row(atom)
            found = self._temp_of[atom, width] = Temp(len(self.temps), atom, width, atom.loops, common)
            self.temps.append(found)
        return found

    def cut(self, turns: Dim, size: Dim) -> Dim:
        """A name for `turns`, moved between 0 and `size`: which of them come first depends on the call."""
        wanted = CutTurns(turns, size)
        for known, c in self.cuts.items():
            if c == wanted:
                return known
        if len(self.cuts) == MAX_CUTS:
            raise RefusedError(
                f"more than {MAX_CUTS} joins whose order depends on the call's sizes", None, instead.NUMBERS
            )
        made = Expr((((f"cut {len(self.cuts)}",), 1),))  # no user's name
        self.cuts[made] = wanted
        return made

    def temp_load(self, temp: Temp) -> Atom:
        """The element of a computed row at this place."""
        return self.load(MemorySource("temp", temp.index), temp.access, temp.atom.dtype)

    def _intern(self, key: Any, op: str, dtype: DType, **rest: Any) -> Atom:
        found = self._atoms.get(key)
        if found is None:
            found = self._atoms[key] = Atom(op, dtype, **rest)
        return found


def _below(a: Atom) -> Iterator[Atom]:
    """The atom, and what it is made of at its place."""
    seen, todo = {a}, [a]
    while todo:
        yield (x := todo.pop())
        todo += [y for y in x.args if y not in seen]
        seen.update(x.args)


def _loops(args: tuple[Atom, ...]) -> tuple[LoopAxis, ...]:
    return ac.loops_of([at for a in args for at in a.loops])

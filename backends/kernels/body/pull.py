"""Follows results backward through a body, from an element that is asked for to an atom."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from lstm_ir import ops
from lstm_ir.backends.kernels.body import access as ac
from lstm_ir.backends.kernels.body import instead, sums
from lstm_ir.backends.kernels.body.access import (
    Access,
    ColumnAxis,
    LoopAxis,
    PickedAxis,
    PieceBoundaryError,
    RefusedError,
)
from lstm_ir.backends.kernels.body.atoms import Atom, Matrix, MemorySource, ProductTerm
from lstm_ir.backends.kernels.body.by_others import BY_OTHERS
from lstm_ir.backends.kernels.body.expressions import COSTLY, Expressions
from lstm_ir.backends.kernels.body.forms import ProductForms
from lstm_ir.backends.kernels.body.hoisting import Projection
from lstm_ir.backends.kernels.body.inner_loops import InnerLoops
from lstm_ir.backends.kernels.body.kept_numbers import KeptNumbers
from lstm_ir.backends.kernels.body.meeting_rows import MeetingRows, over_rows_alone
from lstm_ir.ir.graph import Graph, Node, Value, make, topological
from lstm_ir.ir.literals import splat
from lstm_ir.ir.location import at
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.types import DType, Shape
from lstm_ir.ops.primitive.linear import free_axes

_UNDER_WAY = RefusedError("an element that is being pulled")  # a mark, never raised
_MOVES = {"broadcast_in_dim": ac.through_broadcast, "slice": ac.through_slice, "transpose": ac.through_transpose}


@dataclass(eq=False, kw_only=True)
class Puller(Expressions):
    """Follows results backward through one body."""

    body: Graph
    sources: dict[Value, MemorySource | None]  # parameters; None is the step number
    hoist: bool  # products of scanned rows are made before the loop
    forms: ProductForms
    decided: frozenset[Node]  # whose values are compared, or rounded
    by_terms: frozenset[Node]  # those of them whose sums are made term by term
    projections: list[Projection] = field(default_factory=list)
    numbers: KeptNumbers = field(init=False)
    inner: InnerLoops = field(init=False)
    rows_of: set[Value] = field(default_factory=set)  # sums whose rows are being pulled for one of their elements
    orders: dict[Value, int] = field(default_factory=dict)  # in which sums that are compared are made
    _pulled: dict[Any, Atom | RefusedError] = field(default_factory=dict)
    _reshapes: dict[tuple[Value, Shape], Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbers = KeptNumbers(self.temps)
        self.inner = InnerLoops(self)

    def _kept(self, number: Atom) -> Atom:
        """A number that a loop of a named size counts, as one that is computed once for each turn."""
        if number.cols or all(isinstance(at.room, int) for at in number.loops):
            return number
        temp = self.temp(number, 0)
        self.numbers.add(temp)
        return self.temp_load(temp)

    def pull(self, v: Value, access: Access, width: int) -> Atom:
        """The atom at `access` of `v`; the column window has `width` columns."""
        key = (v, access, width)
        found = self._pulled.get(key)
        if found is None:
            self._pulled[key] = _UNDER_WAY
            try:
                found = self._pull(v, access, width)
            except RefusedError as why:
                found = why
            except BaseException:
                del self._pulled[key]
                raise
            self._pulled[key] = found
        if found is _UNDER_WAY:
            raise RefusedError("an element that its own row is made of", v, instead.OUTSIDE)
        if isinstance(found, RefusedError):
            raise found
        return found

    def _pull(self, v: Value, access: Access, width: int) -> Atom:
        if v in self.sources:
            source = self.sources[v]
            if source is None:
                return self._intern(("step",), "step", v.dtype)
            if source.kind == "inner":
                return self.inner.element(v, access, width)
            if self.forms.loops and source.kind != "value" and any(isinstance(at, ColumnAxis) for at in access[:-1]):
                return sums.as_row(self, v, access)
            return self.load(source, access, v.dtype)
        number = splat(v)
        if number is not None:
            return self.splat(number, v.dtype)
        if v.op in _MOVES:
            return self.pull(v.node.inputs[0], _MOVES[v.op](v, access), width)
        if v.op == "reshape":
            return self._reshaped(v, access, width)
        if v.op == "concatenate":
            piece, at = ac.through_concatenate(v, access, width)
            return self.pull(piece, at, width)
        if v in self.invariant:
            return self.load(MemorySource("value", 0, v), access, v.dtype)
        if v.op in BY_OTHERS:
            return self.pull(self._by_others(v), access, width)
        if Trait.elementwise in v.node.op.traits:
            if v.op in COSTLY and (found := sums.by_row(self, v, access)) is not None:
                return found
            args = self.beside(tuple(self.pull(x, access, width) for x in v.node.inputs), width)
            made = self.elementwise(v.op, v.dtype, args, v.node)
            return self._kept(made) if v.op in COSTLY else made
        if v.op == "dot_general" or v.op in sums.REDUCTIONS:
            return self._summed(v, access, width)
        if v.op == "gather":
            return self._gather(v, access, width)
        if v.op == "scan" and self.forms.loops:
            return self.inner.result(v, access)
        raise RefusedError("the kernel generator does not have this op", v, instead.of_op(v.op))

    def _summed(self, v: Value, access: Access, width: int) -> Atom:
        """A product, or a reduction, which may be over the rows."""
        if self.meeting is not None:
            alone = self._over_rows_alone(v, self.meeting)
            if alone is not v:
                return self.pull(alone, access, width)
            if v.op != "dot_general" and self.meeting.axis(v.node.inputs[0]) in v.node.attrs["dimensions"]:
                self.meeting.met = True
                return sums.over_rows(self, v, access, width)
        return self._product(v, access, width) if v.op == "dot_general" else sums.reduced(self, v, access, width)

    def _over_rows_alone(self, v: Value, rows: MeetingRows) -> Value:
        """The value, or another one in which a reduction is over rows alone; made once."""
        if (v, 0) not in self.turned:
            made = over_rows_alone(v, rows)
            self.turned[v, 0] = v if made is None else made
        return self.turned[v, 0]

    def _reshaped(self, v: Value, access: Access, width: int) -> Atom:
        """An element before a reshape; where that mixes rows with columns, of what the op below it takes, reshaped."""
        try:
            return self.pull(v.node.inputs[0], ac.through_reshape(v, access, width), width)
        except RefusedError:
            before = None if v in self.invariant else self._before_op(v)
            if before is None and v not in self.invariant:
                raise
        return (
            self.load(MemorySource("value", 0, v), access, v.dtype)
            if before is None
            else self.pull(before, access, width)
        )

    def _before_op(self, v: Value) -> Value | None:
        """A reshape moved before an elementwise op, as random bits are counted along one axis."""
        found = self.turned.get((v, 0))
        if found is None:
            (x,) = v.node.inputs
            with at(v.node.loc):
                if x.op == "broadcast_in_dim" and not x.node.inputs[0].rank:
                    found = ops.broadcast_in_dim(x.node.inputs[0], v.shape, ())
                elif x.op == "reshape":
                    found = self._reshape(x.node.inputs[0], v.shape)
                elif Trait.elementwise in x.node.op.traits and len(x.node.inputs) == len(x.node.args):
                    parts = [self._reshape(w, v.shape) for w in x.node.inputs]
                    found = make(x.node.op, *parts, **x.node.attrs).values[0]
                else:
                    return None
            self.turned[v, 0] = found
        return found

    def _reshape(self, v: Value, shape: Shape) -> Value:
        """One value for each shape."""
        found = self._reshapes.get((v, shape))
        if found is None:
            found = self._reshapes[v, shape] = ops.reshape(v, shape)
            if v in self.invariant and found not in self.sources:
                self.invariant.add(found)
        return found

    def adopt(self, v: Value) -> None:
        """A value that was made anew: what of it does not change."""
        for n in topological([v.node]):
            if all(w in self.invariant for w in n.inputs):
                self.invariant.update(w for w in n.values if w not in self.sources)

    def _product(self, v: Value, access: Access, width: int) -> Atom:
        """In registers where one operand is a matrix that does not change, else by a loop over what is summed."""
        n = v.node
        contracting = (n.attrs["lhs_contracting_dimensions"], n.attrs["rhs_contracting_dimensions"])
        places = _places(n, access)
        by_loops = partial(sums.product, self, v, access, width, places)
        m = 1 if n.inputs[1] in self.invariant else 0
        row, matrix = n.inputs[1 - m], self._stored(n.inputs[m])
        row_at, matrix_at = places[1 - m], places[m]
        alike = any(isinstance(x, ac.RowAxis) for x in matrix_at.values())
        crossed = any(isinstance(x, ColumnAxis) for x in row_at.values())
        if len(contracting[0]) != 1 or n.inputs[m] not in self.invariant or alike or crossed:
            return by_loops()
        k_axis = contracting[m][0]
        if not all(isinstance(d, int) for d in matrix.shape):
            if self.rows == 1:
                return by_loops()
            raise RefusedError("a matrix of a named size", v, instead.NUMBERS)  # a loop reads it anew for each row
        row_at[contracting[1 - m][0]] = ColumnAxis(0)
        place = tuple(row_at[i] for i in range(row.rank))
        cols = [i for i, x in matrix_at.items() if isinstance(x, ColumnAxis)]
        if not cols:
            found = sums.by_row(self, v, access)
            return by_loops() if found is None else found
        counted = matrix_at.values() if v.dtype is not DType.i32 else access
        if any(isinstance(x, LoopAxis) for x in counted):
            return by_loops()
        fixed = tuple(matrix_at[i] if i not in (k_axis, *cols) else None for i in range(matrix.rank))
        where = Matrix(matrix, fixed, k_axis, cols[0], 0, matrix_at[cols[0]].start)
        if v.dtype is DType.i32:
            return self._product_of_words(v, row, place, where)
        if n in self.by_terms:
            return by_loops()
        made = self._product_of_floats(v, row, place, where)
        if made is None:
            return by_loops()
        return sums.in_one_order(self, v, sums.REGISTERS, made) if n in self.decided else made

    def _product_of_floats(self, v: Value, row: Value, place: Access, matrix: Matrix) -> Atom | None:
        """Sums over the windows of the row, some of them made before the loop; None where one needs a loop."""
        terms: list[ProductTerm] = []
        outside: list[Atom] = []
        for start, size in self._windows(row, place, int(matrix.value.shape[matrix.k_axis])):
            pulled = self.pull(row, _shifted(place, start), size)
            atom, mask = self._row(pulled, size)
            if atom.loops or (mask is not None and mask.loops):
                return None
            if mask is not None and any(t.mask not in (None, mask) for t in terms):
                atom, mask = self.temp_load(self.temp(pulled, size)), None
            where = replace(matrix, k_start=start)
            if self.hoist and atom.source is not None and atom.source.kind == "scan" and atom.dtype is v.dtype:
                outside.append(self._projected(atom, size, where, mask))
            else:
                terms.append(ProductTerm(atom, size, where, mask))
        parts = [self.dot(tuple(terms), v.dtype), *outside] if terms else outside
        total = parts[0] if parts else self.splat(0.0, v.dtype)
        for p in parts[1:]:
            total = self.elementwise("add", v.dtype, (total, p), None)
        return total

    def _stored(self, matrix: Value) -> Value:
        """The matrix as it is kept: a narrow one is widened in registers, not before the loop."""
        if matrix.op != "convert":
            return matrix
        (kept,) = matrix.node.inputs
        allowed = {DType.f32: self.forms.narrow, DType.i32: frozenset((DType.i8,)) if self.forms.words else ()}
        return kept if kept.dtype in allowed.get(matrix.dtype, ()) and kept in self.invariant else matrix

    def _product_of_words(self, v: Value, row: Value, place: Access, where: Matrix) -> Atom:
        """Sums in i32 of products of int8: the row is kept in int8, four elements a word."""
        if where.value.dtype is not DType.i8:
            raise RefusedError("a product in i32 of other than int8", v, instead.THROUGH_F32)
        terms = []
        for start, size in self._windows(row, place, int(where.value.shape[where.k_axis])):
            pulled = self.pull(row, _shifted(place, start), size)
            if pulled.op != "convert" or pulled.args[0].dtype is not DType.i8:
                raise RefusedError("a product in i32 of other than int8", v, instead.THROUGH_F32)
            kept = pulled.args[0]
            if self.forms.offset:
                offset = self.splat(self.forms.offset - 256, DType.i8)  # the same bits
                kept = self.elementwise("xor", DType.i8, (kept, offset), None)
            words = self.temp_load(self.temp(kept, size))
            terms.append(ProductTerm(words, size, replace(where, k_start=start), None, self.forms.offset))
        return self.dot(tuple(terms), v.dtype) if terms else self.splat(0, v.dtype)

    def _projected(self, row: Atom, length: int, m: Matrix, mask: Atom | None) -> Atom:
        """A column of the product that is made before the loop; zero where `mask` is false."""
        assert row.source is not None
        p = Projection(row.source.index, row.access, length, replace(m, col_start=0))
        if p not in self.projections:
            self.projections.append(p)
        access: Access = (ac.ROW, ColumnAxis(m.col_start)) if row.rows else (ColumnAxis(m.col_start),)
        v = self.load(MemorySource("projection", self.projections.index(p)), access, row.dtype)
        if mask is None:
            return v
        return self.elementwise("select", v.dtype, (mask, v, self.splat(0, v.dtype)), None)

    def _by_others(self, v: Value) -> Value:
        """What other ops make of it, once."""
        found = self.turned.get((v, 0))
        if found is None:
            with at(v.node.loc):
                found = self.turned[v, 0] = BY_OTHERS[v.op](v)
            self.adopt(found)
        return found

    def _gather(self, v: Value, access: Access, width: int) -> Atom:
        """Rows of a table that does not change; or those that a number picks, of any value."""
        (table, indices), axis = v.node.inputs, v.node.attrs["axis"]
        number, size = splat(indices), table.shape[axis]
        if number is not None and isinstance(size, int):
            place = min(max(int(number), 0), size - 1)
            return self.pull(table, (*access[:axis], place, *access[axis + indices.rank :]), width)
        if table not in self.invariant:
            raise RefusedError("a gather from a table that changes", v, instead.PICK)
        index = self.pull(indices, access[axis : axis + indices.rank], 1)
        if index.cols:
            raise RefusedError("a gather of an element for each column", v, instead.of_op("gather"))
        return self.pick(table, (*access[:axis], PickedAxis(), *access[axis + indices.rank :]), index, v.node)

    def _windows(self, row: Value, at: Access, length: int) -> list[tuple[int, int]]:
        """Pieces of a row that lie in one memory each."""
        todo, done = [(0, length)], []
        while todo:
            start, size = todo.pop()
            try:
                self.pull(row, _shifted(at, start), size)
                if size:
                    done.append((start, size))
            except PieceBoundaryError as cut:
                todo += [(start + cut.offset, size - cut.offset), (start, cut.offset)]
        return done

    def _row(self, atom: Atom, width: int) -> tuple[Atom, Atom | None]:
        """A row as memory and the condition under which it counts; computed rows go to scratch."""
        if atom.op == "load" and atom.cols:
            return atom, None
        if atom.op == "select" and not atom.args[0].cols and atom.args[2].op == "splat":
            inner, mask = self._row(atom.args[1], width)
            if atom.args[2].number == 0 and mask is None:
                return inner, atom.args[0]
        return self.temp_load(self.temp(atom, width)), None


def _places(n: Node, access: Access) -> tuple[dict[int, Any], dict[int, Any]]:
    """Where both operands of a product are read, by axis, but for those that are summed."""
    lhs, rhs = n.inputs
    a = n.attrs
    batching = (a["lhs_batching_dimensions"], a["rhs_batching_dimensions"])
    left = free_axes(lhs.rank, batching[0], a["lhs_contracting_dimensions"])
    right = free_axes(rhs.rank, batching[1], a["rhs_contracting_dimensions"])
    both, rest = access[: len(batching[0])], access[len(batching[0]) :]
    return (
        dict(zip((*batching[0], *left), (*both, *rest[: len(left)]), strict=True)),
        dict(zip((*batching[1], *right), (*both, *rest[len(left) :]), strict=True)),
    )


def _shifted(access: Access, by: int) -> Access:
    return tuple(ColumnAxis(at.start + by) if isinstance(at, ColumnAxis) else at for at in access)

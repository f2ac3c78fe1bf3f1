"""Sums and extremes: over the columns of a row, or over other axes by loops inside of the kernel.

A result that has columns of its own, as `y[b,:] = sum_k q[b,k] K[b,k,:]`, is a *fold*: vectors of it are summed in a
loop over k. Where the columns in memory are the ones that are summed, it is a number for each of its own columns,
which are kept in scratch memory and read as a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from lstm_ir.backends.kernels.body import instead
from lstm_ir.backends.kernels.body.access import (
    ROW,
    Access,
    ColumnAxis,
    Index,
    LoopAxis,
    PieceBoundaryError,
    RefusedError,
    TurnBoundaryError,
    TwoOrdersError,
    leading_indices,
)
from lstm_ir.backends.kernels.body.atoms import Atom, MemorySource, Temp
from lstm_ir.backends.kernels.body.meeting_rows import PAIRS
from lstm_ir.backends.kernels.body.tuned import MAX_LEADING
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.types import DType

REDUCTIONS = {"reduce_sum": "add", "reduce_max": "maximum", "reduce_min": "minimum"}
Element = Callable[[int, int], Atom]  # of columns from one on, so many


class AtomMaker(Protocol):
    """What makes atoms of a body: see `pull`."""

    decided: frozenset[Node]
    by_terms: frozenset[Node]
    rows_of: set[Value]
    orders: dict[Value, int]

    def pull(self, v: Value, access: Access, width: int) -> Atom:
        """The atom at a place of a value."""

    def elementwise(self, op: str, dtype: DType, args: tuple[Atom, ...], node: Node | None) -> Atom:
        """An elementwise op."""

    def beside(self, args: tuple[Atom, ...], width: int) -> tuple[Atom, ...]:
        """Of each row and of all."""

    def load(self, source: MemorySource, access: Access, dtype: DType) -> Atom:
        """An element of memory."""

    def fold(self, kind: str, inner: Atom, loop: LoopAxis, node: Node | None = None) -> Atom:
        """Over the turns of a loop."""

    def reduction(self, op: str, inner: Atom, width: int, node: Node) -> Atom:
        """Over columns."""

    def over_rows(self, kind: str, inner: Atom, width: int, node: Node) -> Atom:
        """Over all rows."""

    def cut(self, turns: Dim, size: Dim) -> Dim:
        """Some of the turns of a loop."""

    def temp(self, atom: Atom, width: int) -> Temp:
        """Scratch memory."""

    def temp_load(self, temp: Temp) -> Atom:
        """An element of it."""


def reduced(p: AtomMaker, v: Value, access: Access, width: int) -> Atom:
    """Over the columns of a row, over leading axes, or both."""
    (x,) = v.node.inputs
    dims = v.node.attrs["dimensions"]
    _check(v)
    sizes, access = [x.shape[i] for i in dims], _number_of_one_column(p, v, access)

    def element(known: Sequence[Index], size: int) -> Atom:
        left, at = iter(access), dict(zip(dims, known, strict=True))
        return p.pull(x, tuple(at[i] if i in at else next(left) for i in range(x.rank)), size)

    columns = [k for k, i in enumerate(dims) if i == x.rank - 1]
    return _total(p, v, v.op, access, width, sizes, element, columns)


def over_rows(p: AtomMaker, v: Value, access: Access, width: int) -> Atom:
    """Over the rows alone; for no row, whose own place would be another one."""
    (x,), (axis,) = v.node.inputs, v.node.attrs["dimensions"]
    _check(v)
    if ROW in access:
        raise RefusedError(PAIRS, v, instead.MIXED_ROWS)
    if v.node in p.decided and (one := _of_row(p, v, access)) is not None:
        return one
    return p.over_rows(v.op, p.pull(x, (*access[:axis], ROW, *access[axis:]), width), width, v.node)


def product(p: AtomMaker, v: Value, access: Access, width: int, places: tuple[dict[int, Any], dict[int, Any]]) -> Atom:
    """A product of two values that both change, or whose matrix differs between rows, or with one column.

    places: the index of each axis of both operands that is not summed.
    """
    _check(v)
    operands, a = v.node.inputs, v.node.attrs
    axes = (a["lhs_contracting_dimensions"], a["rhs_contracting_dimensions"])
    sizes = [operands[0].shape[i] for i in axes[0]]
    number = _number_of_one_column(p, v, access)
    if number != access:
        access = number
        places = _numbers(places[0]), _numbers(places[1])

    def term(known: Sequence[Index], size: int) -> Atom:
        at = [dict(side) | dict(zip(one, known, strict=True)) for side, one in zip(places, axes, strict=True)]
        pair = tuple(p.pull(x, tuple(i[k] for k in range(x.rank)), size) for x, i in zip(operands, at, strict=True))
        return p.elementwise("multiply", v.dtype, p.beside(pair, size), None)

    return _total(p, v, "reduce_sum", access, width, sizes, term, range(len(sizes)))


def _number_of_one_column(p: AtomMaker, v: Value, access: Access) -> Access:
    """A sum of one column that is compared is a number wherever it is read: as a column it would have another order."""
    if not _ordered(p, v):
        return access
    return tuple(
        at.start if isinstance(at, ColumnAxis) and n == 1 else at for at, n in zip(access, v.shape, strict=True)
    )


def _ordered(p: AtomMaker, v: Value) -> bool:
    """Whether all elements are made in one order: of a sum, or a product, that decides something.

    An extreme is one of its elements in every order; by a row of its own, their sums would be in another order.
    """
    return v.op not in ("reduce_max", "reduce_min") and v.node in p.decided


def _numbers(places: dict[int, Any]) -> dict[int, Any]:
    return {axis: at.start if isinstance(at, ColumnAxis) else at for axis, at in places.items()}


def _total(
    p: AtomMaker, v: Value, op: str, access: Access, width: int, sizes: Sequence[Dim],
    element: Callable[[Sequence[Index], int], Atom], columns: Sequence[int],
) -> Atom:  # fmt: skip
    """Over axes of these sizes, of which `columns` may be those of rows.

    element: what is summed, from an index for each axis, over so many columns.
    """
    folded = partial(_folded, p, v, op)
    decided = _ordered(p, v)
    if decided and (one := _of_row(p, v, access)) is not None:
        return one
    if _column(access) is None:
        for k, n in () if v.node in p.by_terms else _along(sizes, columns):
            others = [*sizes[:k], *sizes[k + 1 :]]

            def row(known: Sequence[Index], k: int = k, n: int = n) -> Atom:
                return _over_columns(
                    p, v, op, n, lambda s, size: element([*known[:k], ColumnAxis(s), *known[k:]], size)
                )

            with suppress(RefusedError):
                made = folded(others, access, row)
                break
        else:
            made, k = folded(sizes, access, lambda known: element(known, width)), TERMS
        return in_one_order(p, v, k, made) if decided else made
    try:
        made = folded(sizes, access, lambda known: element(known, width))
        return in_one_order(p, v, TERMS, made) if decided else made
    except RefusedError as first:
        try:
            return as_row(p, v, access)
        except RefusedError:
            raise first from None


TERMS, REGISTERS = -1, -2
"""Orders of a sum: term by term, and in registers, as products are; others are the axis whose columns are summed."""


def in_one_order(p: AtomMaker, v: Value, along: int, made: Atom) -> Atom:
    """The sum; TwoOrdersError where an element of it was made in another order before."""
    if p.orders.setdefault(v, along) != along:
        raise TwoOrdersError(v, instead.OUTSIDE)
    return made


def _along(sizes: Sequence[Dim], columns: Sequence[int]) -> list[tuple[int, int]]:
    """Axes that may be columns: those that are in the graph, then long ones."""
    known = [(k, n) for k, n in enumerate(sizes) if isinstance(n, int)]
    return sorted(
        ((k, n) for k, n in known if k in columns or n > MAX_LEADING), key=lambda f: (f[0] not in columns, -f[1])
    )


def by_row(p: AtomMaker, v: Value, access: Access) -> Atom | None:
    """A number that a loop of the kernel counts, as an element of its whole row, which is computed once."""
    found = [i for i, at in enumerate(access) if isinstance(at, LoopAxis)]
    if len(found) != 1 or _column(access) is not None:
        return None
    (i,) = found
    loop = access[i]
    assert isinstance(loop, LoopAxis)
    if not (isinstance(v.shape[i], int) and isinstance(loop.size, int) and isinstance(loop.start, int)):
        return None
    level, size = loop.level, loop.size
    return _from_row(p, v, access, i, (loop.start, size), lambda first: LoopAxis(level, size, first))


def _from_row(
    p: AtomMaker, v: Value, access: Access, axis: int, columns: tuple[int, int], index: Callable[[int], Index]
) -> Atom | None:
    """An element of a row that is computed once; None where there is no such row.

    columns: of that axis the first one, and how many. index: the element, where the row's first column is so far.
    """
    start, size = columns
    try:
        whole = p.pull(v, (*access[:axis], ColumnAxis(start), *access[axis + 1 :]), size)
    except (PieceBoundaryError, TurnBoundaryError, RefusedError):
        return None
    if whole.op == "splat" or not whole.cols:
        return whole
    if whole.op != "load":
        whole = p.temp_load(p.temp(whole, size))
    assert whole.source is not None
    here = tuple(index(at.start) if isinstance(at, ColumnAxis) else at for at in whole.access)
    return p.load(whole.source, here, whole.dtype)


def _of_row(p: AtomMaker, v: Value, access: Access) -> Atom | None:
    """One element of a sum that is compared, from its row: sums in two orders would differ, and `x > x` hold."""
    if v in p.rows_of:
        return None
    p.rows_of.add(v)
    try:
        found = by_row(p, v, access)
        return _at_column(p, v, access) if found is None else found
    finally:
        p.rows_of.remove(v)


def _at_column(p: AtomMaker, v: Value, access: Access) -> Atom | None:
    """The element of a column that is written out."""
    if _column(access) is not None or not access or not isinstance(access[-1], int):
        return None
    size, column = v.shape[-1], access[-1]
    if not isinstance(size, int) or size == 1:
        return None
    return _from_row(p, v, access, len(access) - 1, (0, size), lambda first: first + column)


def as_row(p: AtomMaker, v: Value, access: Access) -> Atom:
    """Columns of a row whose numbers are computed one by one and kept."""
    j = _column(access)
    assert j is not None
    size, column = v.shape[j], access[j]
    assert isinstance(column, ColumnAxis)
    if not isinstance(size, int):
        raise RefusedError("columns of a named size", v, instead.NUMBERS)
    level = max((at.level + 1 for at in access if isinstance(at, LoopAxis)), default=0)
    try:
        number = p.pull(v, (*access[:j], LoopAxis(level, size), *access[j + 1 :]), 1)
    except TurnBoundaryError as boundary:
        if boundary.level != level:
            raise
        raise RefusedError("columns of pieces that are computed one by one", v, instead.OUTSIDE) from None
    if all(at.level != level for at in number.loops):
        return number
    if number.op != "load" or number.source is None or number.source.kind != "temp":
        number = p.temp_load(p.temp(number, 0))
    assert number.source is not None
    here: list[Index] = []
    for at in number.access:
        counted = isinstance(at, LoopAxis) and at.level == level
        here.append(ColumnAxis(column.start) if counted else at)
    return p.load(MemorySource("temp", number.source.index), tuple(here), number.dtype)


def _check(v: Value) -> None:
    if v.dtype.is_float and v.dtype.bits < 32:
        raise RefusedError(f"a sum, or an extreme, of {v.dtype}", v, instead.THROUGH_F32)


def _column(access: Access) -> int | None:
    return next((i for i, at in enumerate(access) if isinstance(at, ColumnAxis)), None)


def _folded(
    p: AtomMaker, v: Value, op: str, sizes: Sequence[Dim], access: Access, element: Callable[[Sequence[Index]], Atom]
) -> Atom:
    """Over axes whose indices are written out, or loops where they are many."""
    total: Atom | None = None
    todo: list[tuple[Index, ...]] = [*reversed(leading_indices(sizes, access))]
    while todo:
        indices = todo.pop()
        try:
            part = element(indices)
        except TurnBoundaryError as boundary:
            todo += reversed(boundary.parts(indices, p.cut))
            continue
        for at in reversed(indices):
            if isinstance(at, LoopAxis):
                part = p.fold(op, part, at, v.node)
        total = part if total is None else p.elementwise(REDUCTIONS[op], v.dtype, (total, part), None)
    if total is None:
        raise RefusedError("a reduction over nothing", v, instead.NO_ELEMENTS)
    return total


def _over_columns(p: AtomMaker, v: Value, op: str, length: int, element: Element) -> Atom:
    """A number per row, in scratch memory; windows that lie in one memory each are reduced apart and then together."""
    todo, parts = [(0, length)] if length else [], list[Atom]()
    while todo:
        start, size = todo.pop()
        try:
            inner = element(start, size)
        except PieceBoundaryError as cut:
            todo += [(start + cut.offset, size - cut.offset), (start, cut.offset)]
            continue
        if inner.has_dot:
            inner = p.temp_load(p.temp(inner, size))
        made = p.reduction(op, inner, size, v.node)
        parts.append(made if made.in_turns else p.temp_load(p.temp(made, 0)))
    if not parts:
        raise RefusedError("a reduction over no columns", v, instead.NO_ELEMENTS)
    total = parts[0]
    for part in parts[1:]:
        total = p.elementwise(REDUCTIONS[op], v.dtype, (total, part), None)
    return total

"""Sums and extremes: over the columns of a row, or over other axes by loops inside of the kernel.

A result that has columns of its own, as `y[b,:] = sum_k q[b,k] K[b,k,:]`, is a *fold*: vectors of it are summed in a
loop over k. Where the columns in memory are the ones that are summed, it is a number for each of its own columns,
which are kept in scratch memory and read as a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lstm_ir.backends.kernels.body import instead
from lstm_ir.backends.kernels.body.access import (
    Access,
    ColumnAxis,
    CutError,
    Index,
    LoopAxis,
    RefusedError,
    leading_indices,
)
from lstm_ir.backends.kernels.body.atoms import Atom, Source
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value

if TYPE_CHECKING:
    from lstm_ir.backends.kernels.body.pull import Puller

REDUCTIONS = {"reduce_sum": "add", "reduce_max": "maximum", "reduce_min": "minimum"}
Element = Callable[[int, int], Atom]  # of columns from one on, so many


def reduced(p: Puller, v: Value, access: Access, width: int) -> Atom:
    """Over the columns of a row, over leading axes, or both."""
    (x,) = v.node.inputs
    dims = v.node.attrs["dimensions"]
    _check(v)
    last = x.rank - 1

    def place(known: dict[int, Index]) -> Access:
        left = iter(access)
        return tuple(known[i] if i in known else next(left) for i in range(x.rank))

    if last not in dims:
        return _folded(p, v, v.op, dims, [x.shape[i] for i in dims], access, lambda at: p.pull(x, place(at), width))
    length = x.shape[-1]
    if not isinstance(length, int):
        raise RefusedError("a reduction that is not over the columns of a row", v, instead.NUMBERS)
    if _column(access) is None:
        leading = [i for i in dims if i != last]

        def columns(at: dict[int, Index]) -> Atom:
            return _over_columns(p, v, v.op, length, lambda s, n: p.pull(x, place({**at, last: ColumnAxis(s)}), n))

        return _folded(p, v, v.op, leading, [x.shape[i] for i in leading], access, columns)
    try:
        sizes = [x.shape[i] for i in dims]
        return _folded(p, v, v.op, dims, sizes, access, lambda at: p.pull(x, place(at), width))
    except RefusedError:
        return _as_row(p, v, access)


def product(p: Puller, v: Value, access: Access, width: int, places: tuple[dict[int, Any], dict[int, Any]]) -> Atom:
    """A product of two values that both change, or whose matrix differs between rows, or with one column.

    places: the index of each axis of both operands that is not summed.
    """
    _check(v)
    operands, a = v.node.inputs, v.node.attrs
    axes = (a["lhs_contracting_dimensions"], a["rhs_contracting_dimensions"])
    sizes = [operands[0].shape[i] for i in axes[0]]

    def term(known: Sequence[Index], size: int) -> Atom:
        at = [dict(side) | dict(zip(one, known, strict=True)) for side, one in zip(places, axes, strict=True)]
        pair = tuple(p.pull(x, tuple(i[k] for k in range(x.rank)), size) for x, i in zip(operands, at, strict=True))
        return p.elementwise("multiply", v.dtype, pair, None)

    if any(not isinstance(n, int) for n in sizes):
        raise RefusedError("a sum over a named size", v, instead.NUMBERS)
    if _column(access) is None and sizes:
        *leading, length = sizes

        def columns(at: dict[int, Index]) -> Atom:
            known = [at[i] for i in range(len(leading))]
            return _over_columns(p, v, "reduce_sum", int(length), lambda s, n: term([*known, ColumnAxis(s)], n))  # type: ignore[call-overload]

        return _folded(p, v, "reduce_sum", range(len(leading)), leading, access, columns)
    try:
        return _folded(p, v, "reduce_sum", range(len(sizes)), sizes, access, lambda at: term([*at.values()], width))
    except RefusedError:
        return _as_row(p, v, access)


def by_row(p: Puller, v: Value, access: Access) -> Atom | None:
    """A number that a loop of the kernel counts, as an element of its whole row, which is computed once."""
    found = [i for i, at in enumerate(access) if isinstance(at, LoopAxis)]
    if len(found) != 1 or _column(access) is not None:
        return None
    (i,) = found
    loop = access[i]
    assert isinstance(loop, LoopAxis)
    try:
        whole = p.pull(v, (*access[:i], ColumnAxis(loop.start), *access[i + 1 :]), loop.size)
    except (CutError, RefusedError):
        return None
    if whole.op == "splat" or not whole.cols:
        return whole
    if whole.op != "load":
        whole = p.temp_load(p.temp(whole, loop.size))
    assert whole.source is not None
    start = whole.column
    here = tuple(LoopAxis(loop.level, loop.size, start) if isinstance(at, ColumnAxis) else at for at in whole.access)
    return p.load(whole.source, here, whole.dtype)


def _as_row(p: Puller, v: Value, access: Access) -> Atom:
    """Columns of a row whose numbers are computed one by one and kept."""
    j = _column(access)
    assert j is not None
    size, column = v.shape[j], access[j]
    assert isinstance(column, ColumnAxis)
    if not isinstance(size, int):
        raise RefusedError("columns of a named size", v, instead.NUMBERS)
    level = max((at.level + 1 for at in access if isinstance(at, LoopAxis)), default=0)
    number = p.pull(v, (*access[:j], LoopAxis(level, size), *access[j + 1 :]), 1)
    if all(at.level != level for at in number.loops):
        return number
    if number.op != "load" or number.source is None or number.source.kind != "temp":
        number = p.temp_load(p.temp(number, 0))
    assert number.source is not None
    here: list[Index] = []
    for at in number.access:
        counted = isinstance(at, LoopAxis) and at.level == level
        here.append(ColumnAxis(column.start) if counted else at)
    return p.load(Source("temp", number.source.index), tuple(here), number.dtype)


def _check(v: Value) -> None:
    if v.dtype.is_float and v.dtype.bits < 32:
        raise RefusedError(f"a sum, or an extreme, of {v.dtype}", v, instead.THROUGH_F32)


def _column(access: Access) -> int | None:
    return next((i for i, at in enumerate(access) if isinstance(at, ColumnAxis)), None)


def _folded(
    p: Puller, v: Value, op: str, axes: Sequence[int], sizes: Sequence[Dim], access: Access,
    element: Callable[[dict[int, Index]], Atom],
) -> Atom:  # fmt: skip
    """Over axes whose indices are written out, or loops where they are many."""
    total: Atom | None = None
    for indices in leading_indices(sizes, v, access):
        part = element(dict(zip(axes, indices, strict=True)))
        for at in reversed(indices):
            if isinstance(at, LoopAxis):
                part = p.fold(op, part, at, v.node)
        total = part if total is None else p.elementwise(REDUCTIONS[op], v.dtype, (total, part), None)
    if total is None:
        raise RefusedError("a reduction over nothing", v, instead.NO_ELEMENTS)
    return total


def _over_columns(p: Puller, v: Value, op: str, length: int, element: Element) -> Atom:
    """A number per row, in scratch memory; windows that lie in one memory each are reduced apart and then together."""
    todo, parts = [(0, length)] if length else [], list[Atom]()
    while todo:
        start, size = todo.pop()
        try:
            inner = element(start, size)
        except CutError as cut:
            todo += [(start + cut.offset, size - cut.offset), (start, cut.offset)]
            continue
        if inner.has_dot:
            inner = p.temp_load(p.temp(inner, size))
        parts.append(p.temp_load(p.temp(p.reduction(op, inner, size, v.node), 0)))
    if not parts:
        raise RefusedError("a reduction over no columns", v, instead.NO_ELEMENTS)
    total = parts[0]
    for part in parts[1:]:
        total = p.elementwise(REDUCTIONS[op], v.dtype, (total, part), None)
    return total

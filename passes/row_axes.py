"""Which axis of every carry and result of a loop is that of rows: independent of each other, the same in all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ops.scan.axes import BodyAxes
from lstm_ir.passes.tuned import NARROW_COLUMNS


def rows_of(outputs: Sequence[Value], axes: BodyAxes) -> dict[Value, int] | None:
    """The axis of rows of every carry and result."""
    found = list(_candidates(outputs, axes))
    return min(found, key=lambda rows: _cost(rows, axes)) if found else None


def _candidates(outputs: Sequence[Value], axes: BodyAxes) -> Iterator[dict[Value, int]]:
    first = max(outputs, key=lambda v: v.rank)
    for i in range(first.rank):
        kind, size = axes.of(first, i), first.shape[i]
        rows: dict[Value, int] = {}
        for v in outputs:
            same = [j for j in range(v.rank) if v.shape[j] == size and axes.of(v, j) not in axes.mixed]
            same.sort(key=lambda j: (axes.of(v, j) != kind, j != max(v.rank - 2, 0), j))
            if same:
                rows[v] = same[0]
        if len(rows) == len(outputs):
            yield rows


def _cost(rows: Mapping[Value, int], axes: BodyAxes) -> tuple[bool, int, bool, bool, int]:
    """Named sizes first, then what no matrix has an axis of, then where kernels expect rows."""
    named = any(not isinstance(v.shape[i], int) for v, i in rows.items())
    matrices = sum(axes.matrices(kind) for kind in {axes.of(v, i) for v, i in rows.items()})
    several = [(v, i) for v, i in rows.items() if v.rank > 1]
    takes_columns = any(v.rank > 2 and i != 0 and narrow(v.shape[-1]) for v, i in several)
    elsewhere = any(i != v.rank - 2 for v, i in several)
    return not named, matrices, takes_columns, elsewhere, sum(rows.values())


def narrow(size: Dim) -> bool:
    """Whether so many columns are few."""
    return not isinstance(size, int) or size < NARROW_COLUMNS

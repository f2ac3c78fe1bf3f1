"""Bodies in which rows meet: a mean of the batch, one flag for all rows, a carry without rows.

    m = max(m, max(x[b] over b))        h[b] = cell(h[b], (x[b] - mean) * scale)

What has no row axis is *common* to all rows and computed once, in sweeps of their own: a fold over the rows reads what
an earlier sweep, or the expression itself, gives for each row. All rows are one chunk then, whose members wait for each
other after every sweep, so that a fold begins when all rows are there. It adds row after row in one thread, in the
same order whoever runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lstm_ir import ops
from lstm_ir.backends.kernels.body import instead
from lstm_ir.backends.kernels.body.access import Index, RefusedError
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.location import at
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait
from lstm_ir.ops.scan.axes import Axis, BodyAxes

PAIRS = "rows meet each other in pairs"


@dataclass(eq=False)
class MeetingRows:
    """Which axis of each value counts the rows, in a body where some have none."""

    axes: BodyAxes
    kind: Axis  # that of the rows
    size: Dim
    row_axis: int  # of results with two axes or more
    known: dict[Value, int | None] = field(default_factory=dict)
    met: bool = False  # whether anything was found that is over the rows, or common to all

    def axis(self, v: Value) -> int | None:
        """The axis of rows, of a value of the body or of one that was made of such; None: it is common to all."""
        if v not in self.known:
            self.known[v] = self._axis(v)
        return self.known[v]

    def common(self, v: Value) -> bool:
        """Whether a result is one for all rows."""
        i = self.axis(v)
        if i is not None and v.rank > 1 and i != self.row_axis % v.rank:
            raise RefusedError("rows of results are different axes", v, instead.MIXED_ROWS)
        self.met |= i is None
        return i is None

    def known_row(self, at: Index | None) -> bool:
        """Whether an index is that of one row: all rows of the step before are there."""
        found = isinstance(at, int) and isinstance(self.size, int)
        self.met |= found
        return found

    def is_rows(self, v: Value, axis: int) -> bool:
        """Whether an axis is that of the rows."""
        return self.axis(v) == axis

    def _axis(self, v: Value) -> int | None:
        found = [i for i in range(v.rank) if self.axes.of(v, i) == self.kind]
        if len(found) > 1:
            self.met = True
            raise RefusedError(PAIRS, v, instead.MIXED_ROWS)
        if found or not v.node.inputs:
            return found[0] if found else None
        return self._of_made(v)

    def _of_made(self, v: Value) -> int | None:
        """Of what takes the place of another op."""
        n = v.node
        if Trait.elementwise in n.op.traits:
            return next((i for x in n.inputs if x.rank and (i := self.axis(x)) is not None), None)
        before = self.axis(n.inputs[0])
        if before is None:
            return None
        if v.op == "broadcast_in_dim":
            place: int = n.attrs["broadcast_dimensions"][before]
            return place if v.shape[place] == self.size else None
        if v.op.startswith("reduce_"):
            gone = n.attrs["dimensions"]
            return None if before in gone else before - sum(i < before for i in gone)
        return None


def candidates(n: Node, row_axis: int) -> Iterator[MeetingRows]:
    """Each kind of axis that may be that of the rows, where rows meet or a result is common to all."""
    loop = Loop(n)
    outputs = list(dict.fromkeys(loop.body.outputs))
    several = [v for v in outputs if v.rank > 1]
    found = [*((v, row_axis % v.rank) for v in several), *((v, 0) for v in outputs if v.rank == 1)]
    if not found:
        return
    axes = BodyAxes(loop)
    seen = set[Axis]()
    for v, i in found:
        kind = axes.of(v, i)
        if kind in seen or v.shape[i] == 1:
            continue
        seen.add(kind)
        _numbers_of_rows(axes, loop, outputs, kind, v.shape[i])
        yield MeetingRows(axes, axes.of(v, i), v.shape[i], row_axis)


def _numbers_of_rows(axes: BodyAxes, loop: Loop, outputs: list[Value], kind: Axis, size: Dim) -> None:
    """Numbers, as many as rows, that nothing else says what they are: one for each row."""
    columns = {axes.of(v, v.rank - 1) for v in outputs if v.rank > 1}
    for v in outputs:
        if v.rank == 1 and v.shape[0] == size:
            own = axes.of(v, 0)
            if own != kind and own not in columns and own not in axes.mixed and not axes.matrices(own):
                axes.join(kind, own)


def over_rows_alone(v: Value, rows: MeetingRows) -> Value | None:
    """A sum, or an extreme, over the rows and others as two: over the others, then over the rows. None where it is
    over the rows alone, or not over them."""
    n = v.node
    if n.op.name == "dot_general":
        return _of_product(v, rows)
    (x,), gone = n.inputs, n.attrs["dimensions"]
    row = rows.axis(x)
    if row not in gone or len(gone) == 1:
        return None
    with at(n.loc):
        first = make(n.op, x, dimensions=tuple(i for i in gone if i != row)).values[0]
        return make(n.op, first, dimensions=(row - sum(i < row for i in gone),)).values[0]


def _of_product(v: Value, rows: MeetingRows) -> Value | None:
    """A product that is summed over the rows, as one for each row and a sum."""
    n, a = v.node, v.node.attrs
    summed = list(zip(a["lhs_contracting_dimensions"], a["rhs_contracting_dimensions"], strict=True))
    over = [pair for pair in summed if any(map(rows.is_rows, n.inputs, pair))]
    if not over:
        return None
    batch = list(zip(a["lhs_batching_dimensions"], a["rhs_batching_dimensions"], strict=True))
    rest = [pair for pair in summed if pair not in over]
    with at(n.loc):
        left, right = n.inputs
        each = ops.dot_general(left, right, _sides(rest), _sides([*over, *batch]))
        rows.known[each] = 0
        return ops.sum(each, 0)


def _sides(pairs: list[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(i for i, _ in pairs), tuple(i for _, i in pairs)

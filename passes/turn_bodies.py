"""`turn-bodies`: the rows and columns of a loop's state stand where kernels have them, whichever way it is written.

    carry s [B,H,N], y [B,H] = sum_n s c      ->      carry s [N,B,H]

A kernel shares out rows, the batch, and computes vectors of columns, the last axis. Rows are an axis of every carry
and result along which nothing meets; columns are the widest of the others. Data is moved outside of the loop, inside a
transpose costs nothing. Where rows lead and the last axis is summed, as by the delta rule, columns are another one
as wide (docs/kernels.md has the figures). A number for each head, [B,N] beside a state [B,N,H], has one column, not
N: [B,N,1]; not where the heads meet, as the places of an attention do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from lstm_ir import ops
from lstm_ir.ir.clone import clone
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import Shape
from lstm_ir.ops.primitive.window import slice as slice_op
from lstm_ir.ops.scan.axes import Axis, BodyAxes
from lstm_ir.passes.base import KernelPass, Notes, register
from lstm_ir.passes.hoist import in_loops
from lstm_ir.passes.loops import new_param, rebuilt
from lstm_ir.passes.row_axes import narrow, rows_of
from lstm_ir.passes.tuned import WIDE_COLUMNS

Order = tuple[int, ...]


@dataclass(frozen=True)
class ValueLayout:
    """How one value stands in the turned body."""

    order: Order
    unit: bool = False  # with a column of its own: its last axis leads, as one of the state's

    def shape(self, old: Shape) -> Shape:
        """Of the turned value."""
        return (*(old[i] for i in self.order), *((1,) if self.unit else ()))

    def there(self, v: Value) -> Value:
        """The turned value."""
        turned = ops.transpose(v, self.order)
        return ops.expand_dims(turned, turned.rank) if self.unit else turned

    def back(self, v: Value) -> Value:
        """The value as it was."""
        return ops.transpose(ops.squeeze(v, v.rank - 1) if self.unit else v, _inverse(self.order))

    def stacked(self) -> ValueLayout:
        """Of the values of all steps."""
        return ValueLayout((0, *(i + 1 for i in self.order)), self.unit)


@register
@dataclass(frozen=True)
class TurnBodies(KernelPass):
    """Carries, scanned rows and results of a loop with rows last but one, and their widest axis last."""

    name: ClassVar[str] = "turn-bodies"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with its loops turned; only kernels need that."""
        if not self.for_kernels(target):
            return graph

        def one(loop: Loop) -> dict[Value, Value] | None:
            layouts = _layouts(loop)
            if not layouts:
                return None
            notes.fire(f"{len(layouts)} values are turned", loop.node.loc)
            return _turned(loop, layouts)

        return in_loops(graph, self.name, one)


@dataclass(frozen=True)
class _Results:
    """Where what a body returns has its rows and its columns."""

    axes: BodyAxes
    rows: Mapping[Value, int]
    columns: Mapping[Value, int]  # of those with more than rows
    rows_lead: bool = False  # in front of all other axes, in the turned body too

    @property
    def highest(self) -> int:
        return max(v.rank for v in self.columns)

    @property
    def row_kinds(self) -> set[Axis]:
        return {self.axes.of(v, i) for v, i in self.rows.items()}

    @property
    def wide(self) -> set[Axis]:
        """The columns of the highest rank."""
        return {self.axes.of(v, i) for v, i in self.columns.items() if v.rank == self.highest}

    @property
    def heads(self) -> list[Value]:
        """Those that hold one number for each head: their other axis leads in one of the highest rank."""
        higher = [v for v in self.columns if v.rank == self.highest > 2]
        leading = {
            self.axes.of(v, i) for v in higher for i in range(v.rank) if i not in (self.rows[v], self.columns[v])
        }
        found = {v: self.axes.of(v, 1 - self.rows[v]) for v in self.columns if v.rank == 2}
        return [v for v, axis in found.items() if axis in leading - self.axes.mixed]

    @property
    def rows_first(self) -> bool:
        return all(self.rows[v] == 0 for v in self.columns)

    @property
    def stand(self) -> bool:
        """Whether kernels take them as they are: columns last, rows first or beside the columns."""
        beside = all(self.rows[v] == v.rank - 2 for v in self.columns)
        return (beside or self.rows_first) and all(i == v.rank - 1 for v, i in self.columns.items())

    def layouts(self) -> dict[Value, ValueLayout]:
        if self.stand:
            return {v: ValueLayout((0, 1), unit=True) for v in self.heads} if self.rows_first else {}
        found = {v: ValueLayout(_order(v.rank, self.rows[v], i, self.rows_lead)) for v, i in self.columns.items()}
        heads = {v: (0, 1) if self.rows_lead else (1 - self.rows[v], self.rows[v]) for v in self.heads}
        return found | {v: ValueLayout(order, unit=True) for v, order in heads.items()}


def _results(loop: Loop) -> _Results | None:
    """None where there is nothing to turn: no rows that all have, or no columns."""
    outputs = list(dict.fromkeys(loop.body.outputs))
    if all(v.rank < 2 for v in outputs) or any(v.rank == 0 for v in outputs):
        return None
    axes = BodyAxes(loop)
    rows = rows_of(outputs, axes)
    if rows is None:
        return None
    found = _Results(axes, rows, {v: _column(v, rows[v], axes) for v in outputs if v.rank > 1})
    if not (found.stand and found.rows_first):
        return found
    apart = {v: _unsummed(v, i, axes) for v, i in found.columns.items()}
    return found if apart == found.columns else _Results(axes, rows, apart, rows_lead=True)


def _layouts(loop: Loop) -> dict[Value, ValueLayout]:
    """How parameters and results of the body are turned: those whose axes are in another order."""
    results = _results(loop)
    if results is None:
        return {}
    found = results.layouts()
    found |= {p: found[v] for p, v in zip(loop.carry_params, loop.next, strict=True) if v in found}
    # A scanned row that a body returns, as the row of the step before, stands as what is returned.
    found |= {p: t for p, t in _scanned(loop, results).items() if p not in results.columns}
    return {v: t for v, t in found.items() if t != ValueLayout(tuple(range(v.rank)))}


def _scanned(loop: Loop, results: _Results) -> dict[Value, ValueLayout]:
    """Of the rows that are scanned; where the results stand, of those alone that have rows last."""
    axes, kinds, wide = results.axes, results.row_kinds, results.wide
    orders = {p: _scanned_order(p, axes, kinds, wide, results.rows_lead) for p in loop.x_params}
    stand = results.stand
    return {
        p: ValueLayout(order)
        for p, order in orders.items()
        if order is not None and (not stand or axes.of(p, p.rank - 1) in kinds)
    }


def _order(rank: int, row: int | None, column: int, rows_lead: bool) -> Order:
    others = [i for i in range(rank) if i not in (row, column)]
    if row is None:
        return (*others, column)
    return (row, *others, column) if rows_lead else (*others, row, column)


def _scanned_order(p: Value, axes: BodyAxes, rows: set[Axis], wide: set[Axis], rows_lead: bool) -> Order | None:
    """The order of a scanned row's axes; None where it has no columns."""
    row = next((i for i in range(p.rank) if axes.of(p, i) in rows), None)
    column = next((i for i in reversed(range(p.rank)) if axes.of(p, i) in wide and i != row), None)
    if column is None and p.rank > 1 and row == p.rank - 1:
        column = p.rank - 2
    return None if column is None or p.rank < 2 else _order(p.rank, row, column, rows_lead)


def _column(v: Value, row: int, axes: BodyAxes) -> int:
    """The axis of columns: the last one, or a much wider one."""
    last = v.rank - 1
    sizes = _widths(v, axes, row)
    if row == last:
        return max(sizes, key=lambda i: (sizes[i], i), default=last - 1)
    here = sizes.get(last)
    best = max(sizes, key=lambda i: (sizes[i], i), default=last)
    if here is None:
        return best
    return best if narrow(here) and sizes[best] >= max(WIDE_COLUMNS, 2 * here) else last


def _unsummed(v: Value, column: int, axes: BodyAxes) -> int:
    """The axis of columns, or the next one before it that is as wide and along which nothing is summed.

    A sum of a vector's elements costs more than a sum of vectors.
    """
    sizes = _widths(v, axes, 0)
    here = sizes.get(column, 0)
    if axes.of(v, column) not in axes.mixed or here < WIDE_COLUMNS:
        return column
    return next((i for i in reversed(sizes) if sizes[i] >= here and axes.of(v, i) not in axes.mixed), column)


def _widths(v: Value, axes: BodyAxes, row: int) -> dict[int, int]:
    """Sizes of axes that columns may be: numbers, and along which no product has a matrix for each index."""
    return {
        i: int(d)
        for i, d in enumerate(v.shape)
        if i != row and isinstance(d, int) and (i == v.rank - 1 or axes.of(v, i) not in axes.batched)
    }


def _turned(loop: Loop, layouts: Mapping[Value, ValueLayout]) -> dict[Value, Value]:
    """Old results -> those of the loop over turned data."""
    env: dict[Value, Value] = {p: p for p in loop.body.params}
    params: dict[Value, Value] = {}
    for p in (*loop.carry_params, *loop.x_params):
        if p in layouts:
            params[p] = new_param("turned", p.type.with_shape(layouts[p].shape(p.shape)))
            env[p] = layouts[p].back(params[p])

    made = dict(zip(loop.body.outputs, clone(loop.body.outputs, env), strict=True))

    def inside(v: Value) -> Value:
        return layouts[v].there(made[v]) if v in layouts else made[v]

    carries = [
        (layouts[p].there(first) if p in layouts else first, params.get(p, p), inside(after))
        for first, p, after in zip(loop.init, loop.carry_params, loop.next, strict=True)
    ]
    xs = [
        (_moved(x, layouts[p].stacked()) if p in layouts else x, params.get(p, p), r)
        for x, p, r in zip(loop.xs, loop.x_params, loop.x_reverse, strict=True)
    ]
    ys = [(inside(v), r) for v, r in zip(loop.rows, loop.y_reverse, strict=True)]
    consts = list(zip(loop.consts, loop.const_params, strict=True))
    new = Loop(rebuilt(loop.body.name, loop, consts, carries, xs, ys))
    out = {}
    for old, now, v in zip(loop.finals, new.finals, loop.next, strict=True):
        out[old] = layouts[v].back(now) if v in layouts else now
    for old, now, v in zip(loop.ys, new.ys, loop.rows, strict=True):
        out[old] = layouts[v].stacked().back(now) if v in layouts else now
    return out


def _moved(x: Value, layout: ValueLayout) -> Value:
    """Rows of all steps, turned before they are joined or cut: kernels read rows of the step before in place."""
    n, order = x.node, layout.order
    if x.op == "concatenate" and n.attrs["dimension"] == 0:
        return ops.concat([_moved(v, layout) for v in n.inputs], 0)
    if x.op == "slice" and not layout.unit:
        low, high, by = (n.attrs[k] for k in ("start_indices", "limit_indices", "strides"))
        if set(by) <= {1}:
            return slice_op(_moved(n.inputs[0], layout), [low[i] for i in order], [high[i] for i in order])
    return layout.there(x)


def _inverse(order: Order) -> Order:
    return tuple(sorted(range(len(order)), key=order.__getitem__))

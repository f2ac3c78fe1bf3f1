"""A scan whose body is one recurrent cell, as one recurrent op."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lstm_ir import ops
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.passes.base import Notes
from lstm_ir.passes.cell.build import CellParts, gru_plan, plain_plan
from lstm_ir.passes.cell.mask import MaskedLoop
from lstm_ir.passes.cell.match import CellMatch, gru_cells, lstm_cells, rnn_cells
from lstm_ir.passes.cell.op import batch, recurrent
from lstm_ir.passes.cell.terms import NoCellError, Terms
from lstm_ir.passes.lift import Dependence, Lift


class LoopCell:
    """One loop, tried as an LSTM (two carries), a GRU or an RNN (one carry)."""

    def __init__(self, loop: Loop, name: str, notes: Notes) -> None:
        self.loop, self.name, self.notes = loop, name, notes
        self.lift = Lift(loop, name)
        self.masked = MaskedLoop.of(loop)
        fixed = self._is_fixed
        self.terms = Terms(fixed, fixed)
        self.reverse = False
        self.T = loop.length

    def _is_fixed(self, v: Value) -> bool:
        return self.lift.kind.get(v) is Dependence.fixed

    def fixed(self, v: Value) -> Value:
        """A weight, outside."""
        return self.lift.fixed(v)

    def rows(self, v: Value) -> Value:
        """[T,...] of what the loop reads."""
        return self.lift.rows(v, self.reverse)

    def fused(self) -> dict[Value, Value] | None:
        """The loop's results by the op; None, with a note, where it is no cell."""
        near: list[NoCellError] = []  # where the equations end, and where the operands do
        refused: list[NoCellError] = []
        for carries, cell in self._candidates(near):
            try:
                found = self._by_op(carries, cell)
            except NoCellError as e:
                refused.append(e)
                continue
            self.notes.fire(f"loop into {cell.op}", self.loop.node.loc)
            return found
        why = refused[0] if refused else near[0] if near else None
        if why is not None:
            self.notes.miss(f"the loop is not fused: {why.reason}", why.value)
        elif self._recurrent():
            self.notes.miss("the loop is no LSTM, GRU or RNN cell", self.loop.node.values[0])
        return None

    def _recurrent(self) -> bool:
        return any(n.op.name == "dot_general" for n in self.loop.body.nodes)

    def _candidates(self, near: list[NoCellError]) -> Iterator[tuple[tuple[int, ...], CellMatch]]:
        new = self.masked.new
        if len(new) == 2:
            for h, c in ((0, 1), (1, 0)):
                for cell in lstm_cells(new[h], self.terms, near):
                    if self.terms.fresh().peel(new[c]) is cell.new[1]:
                        yield (h, c), cell
        elif len(new) == 1:
            yield from (((0,), cell) for cell in gru_cells(new[0], self.terms))
            yield from (((0,), cell) for cell in rnn_cells(new[0], self.terms))
        elif any(True for v in new for _ in lstm_cells(v, self.terms, [])):
            near.append(NoCellError(f"it carries {len(new)} values, an LSTM two", self.loop.node.values[0]))

    def _by_op(self, carries: tuple[int, ...], cell: CellMatch) -> dict[Value, Value]:
        loop = self.loop
        params = [loop.carry_params[k] for k in carries]
        for old, p in zip(cell.old, params, strict=True):
            if old is not None and self.terms.fresh().peel(old) is not p:
                raise NoCellError("the new state is not mixed from the state that it replaces", old)
        plan = gru_plan(cell, params[0]) if cell.op == "gru" else plain_plan(cell, params[0])
        self.reverse = self._direction(plan)
        rows = [self._row(v, cell) for v in loop.rows]
        paddings = {p for _, p in rows if p}
        if len(paddings) > 1:
            raise NoCellError("its results show two kinds of padding", loop.node.values[0])
        if "hold" in paddings and loop.count is not None:
            raise NoCellError("its results are zero from count on, and held past their length", loop.node.values[0])
        node = recurrent(
            plan, self, [loop.init[k] for k in carries],
            direction="reverse" if self.reverse else "forward",
            save=any(r == "cells" or (r == "computed" and cell.op == "lstm") for r, _ in rows),
            padding=paddings.pop() if paddings else "zero",
            lengths=self.masked.lengths(self.lift, self.reverse, batch(cell.new[0])),
            count=loop.count,
        )  # fmt: skip
        out = {loop.finals[k]: _as(node, n, loop.finals[k]) for k, n in zip(carries, ("h_n", "c_n"), strict=False)}
        states = {"y": cell.new[0], "cells": cell.new[-1]} if cell.op == "lstm" else {"y": cell.new[0]}
        known = {
            w: self._rows_of(node, r, w)
            for r, v in states.items()
            for w in (v, self.terms.fresh().peel(v))
            if node.result(r) is not None
        }
        after = Lift(loop, self.name, known, reverse=self.reverse)
        for y, v, (r, _) in zip(loop.ys, loop.rows, rows, strict=True):
            out[y] = after.rows(v, self.reverse) if r == "computed" else _as(node, r, y)
        return out

    def _rows_of(self, node: Node, result: str, v: Value) -> Value:
        """A result of the op as the rows of the body's value v."""
        got: Any = node.result(result)
        return ops.reshape(got, (self.loop.length, *v.shape))

    def _direction(self, plan: CellParts) -> bool:
        """Whether the loop runs from the last row to the first."""
        flags = set(self.loop.y_reverse)
        for g in plan.gates:
            for v in (*(d.row for d in g.inputs), *(o.value for o in g.others)):
                kind = self.lift.kind[v]
                if kind is Dependence.carried:
                    raise NoCellError("a gate reads the state other than through its product", v)
                if kind in (Dependence.forward, Dependence.backward):
                    flags.add(kind is Dependence.backward)
        if len(flags) > 1:
            raise NoCellError("it reads or gives rows in both orders", self.loop.node.values[0])
        return bool(flags) and flags.pop()

    def _row(self, v: Value, cell: CellMatch) -> tuple[str, str]:
        """The op's result that a stacked value is, and its padding."""
        shown, padding = self.masked.row(v)
        shown = self.terms.fresh().peel(shown)
        if shown is self.terms.fresh().peel(cell.new[0]):
            return "y", padding
        if cell.op == "lstm" and shown is cell.new[1] and padding != "hold":
            return "cells", padding
        if self._computable(v, cell):
            return "computed", padding
        raise NoCellError("the loop gives a value that is neither state", v)

    def _computable(self, v: Value, cell: CellMatch) -> bool:
        """Whether a stacked value can be computed from the states of all steps, after the loop."""
        if self.masked.test is not None or self.loop.count is not None:
            return False  # rows that do not exist are zero, whatever is computed from the states
        states = {w: w for s in cell.new for w in (s, self.terms.fresh().peel(s))}
        return Lift(self.loop, self.name, states, reverse=self.reverse).kind[v] is not Dependence.carried


def _as(node: Node, name: str, like: Value) -> Value:
    got: Any = node.result(name)
    return ops.reshape(got, like.shape)

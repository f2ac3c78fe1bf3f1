"""`split-loops`: a loop of several layers is a loop for each, and what needs no loop is done for all steps at once.

    loop: e = conv(x[t]), h = cell(W e, h), g = cell(V h, g), y[t] = U g
        ->
    E = conv(x);  loop: h = cell(W E[t], h);  loop: g = cell(V H[t], g);  Y = U G

Carries that depend on each other in a circle stay in one loop; without carries there is none. What lies between
the circles is lifted: a product with a weight reads it once for all steps, not once for each. A loop over frames,
as `over_time` makes it, becomes layers over time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lstm_ir import ops
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ops.primitive.fill import zeros
from lstm_ir.ops.primitive.size import steps_that_run
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.circles import Circles
from lstm_ir.passes.hoist import in_loops
from lstm_ir.passes.lift import Lift
from lstm_ir.passes.loops import new_param, rebuilt


@register
@dataclass(frozen=True)
class SplitLoops(Pass):
    """Loops over parts that do not depend on each other in a circle become a loop for each part."""

    name: ClassVar[str] = "split-loops"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with a loop for each circle."""

        def one(loop: Loop) -> dict[Value, Value] | None:
            circles = Circles(loop)
            if not circles.worth:
                return None
            if circles.mixed:
                notes.miss("a loop of several parts reads or gives rows in both orders", loop.node.values[0])
                return None
            if circles.keeps_inner_rows:
                notes.miss("rows of a loop in it would be kept for all of its steps", loop.node.values[0])
                return None
            notes.fire(f"{len(circles.groups)} loops, {len(circles.lifted)} values lifted", loop.node.loc)
            return _Split(loop, circles, self.name).results()

        return in_loops(graph, self.name, one)


class _Split:
    """One loop, put together again as several."""

    def __init__(self, loop: Loop, circles: Circles, rule: str) -> None:
        self.loop, self.circles, self.rule = loop, circles, rule
        self.reverse = circles.reverse
        self.known: dict[Value, Value] = {}  # rows of what the loops so far have given

    def results(self) -> dict[Value, Value]:
        """Old results -> new ones."""
        loop, out = self.loop, dict[Value, Value]()
        for k, group in enumerate(self.circles.groups):
            finals = self._run(k)
            out |= {loop.finals[i]: v for i, v in zip(group, finals, strict=True)}
        lift = self._lift()
        for y, v in zip(loop.ys, loop.rows, strict=True):
            rows = lift.rows(v, self.reverse)
            out[y] = rows if v in self.known else self._of_steps_that_run(rows)
        return out

    def _lift(self) -> Lift:
        return Lift(self.loop, self.rule, self.known, reverse=self.reverse)

    def _run(self, k: int) -> tuple[Value, ...]:
        """The loop of one group; its last carries."""
        loop, circles, lift = self.loop, self.circles, self._lift()
        part = circles.part(k)
        env = {v: new_param("row", v.type) for v in part.rows}
        consts = [(v, p) for v, p in zip(loop.consts, loop.const_params, strict=True) if p in part.reads]
        xs = [(v, p, r) for v, p, r in zip(loop.xs, loop.x_params, loop.x_reverse, strict=True) if p in part.reads]
        xs += [(lift.rows(v, self.reverse), env[v], self.reverse) for v in part.rows]
        carries = [(loop.init[i], loop.carry_params[i], loop.next[i]) for i in circles.groups[k]]
        ys = [(v, self.reverse) for v in part.saved]
        node = rebuilt(f"{loop.body.name}_{k}", loop, consts, carries, xs, ys, env)
        new = Loop(node)
        self.known |= dict(zip(part.saved, new.ys, strict=True))
        return new.finals

    def _of_steps_that_run(self, rows: Value) -> Value:
        """Zero at the rows of steps that `count` leaves out, as a loop gives them."""
        count = self.loop.count
        if count is None:
            return rows
        runs = ops.arange(self.loop.length) < steps_that_run(count, self.loop.length)
        mask = ops.broadcast_in_dim(runs, rows.shape, (0,))
        return ops.select(mask, rows, zeros(rows.shape, rows.dtype))

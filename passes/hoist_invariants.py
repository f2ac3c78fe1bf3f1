"""`hoist-invariants`: what a loop computes from its constants alone is computed once, before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.moves import stored_narrow
from lstm_ir.ir.target import TargetInfo
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.hoist import frontier, in_loops, moved_out
from lstm_ir.passes.lift import Kind, Lift

CHEAP = ("parameter", "constant", "broadcast_in_dim", "iota", "dim")  # nothing is computed: they stay inside


@register
@dataclass(frozen=True)
class HoistInvariants(Pass):
    """Loop-invariant values become constants of the loop; repeats and widened weights stay."""

    name: ClassVar[str] = "hoist-invariants"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with invariant work outside its loops."""

        def one(loop: Loop) -> dict[Value, Value] | None:
            lift = Lift(loop, self.name)
            found = frontier(loop, lambda v: _worth(v, lift))
            found = [v for v in found if v.op != "parameter"]
            for v in found:
                notes.fire(f"move {v.op} out of the loop", v.node.loc)
            return moved_out(loop, found, [], lift) if found else None

        return in_loops(graph, self.name, one)


def _worth(v: Value, lift: Lift) -> bool:
    if lift.kind[v] is not Kind.fixed or v.op in CHEAP:
        return False
    return not stored_narrow(v)  # it would be stored wide

"""`hoist-invariants`: what a loop computes from its constants alone is computed once, before it.

Weights in fewer bits are the exception, for a CPU's kernels: they stay narrow, and are widened in the loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lstm_ir.ir.clone import clone
from lstm_ir.ir.graph import Graph, Value, make
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.moves import stored_narrow
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ops.primitive.elementwise import convert
from lstm_ir.ops.scan.node import scan_node
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.hoist import frontier, in_loops, moved_out
from lstm_ir.passes.lift import Dependence, Lift

CHEAP = ("parameter", "constant", "broadcast_in_dim", "iota", "dim")  # nothing is computed: they stay inside


@register
@dataclass(frozen=True)
class HoistInvariants(Pass):
    """Loop-invariant values become constants of the loop; repeats and widened weights stay."""

    name: ClassVar[str] = "hoist-invariants"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with invariant work outside its loops."""

        def one(loop: Loop) -> dict[Value, Value] | None:
            inside = _narrow_inside(loop, notes) if target is not None and target.kind == "cpu" else loop
            lift = Lift(inside, self.name, inputs=graph.params)
            found = frontier(inside, lambda v: _worth(v, lift))
            found = [v for v in found if v.op != "parameter"]
            for v in found:
                notes.fire(f"move {v.op} out of the loop", v.node.loc)
            if not found:
                return None if inside is loop else dict(zip(loop.node.values, inside.node.values, strict=True))
            return dict(zip(loop.node.values, moved_out(inside, found, [], lift).values(), strict=True))

        return in_loops(graph, self.name, one, until=True)


def _worth(v: Value, lift: Lift) -> bool:
    if lift.kind[v] is not Dependence.fixed or v.op in CHEAP:
        return False
    return not stored_narrow(v)  # it would be stored wide


def _narrow_inside(loop: Loop, notes: Notes) -> Loop:
    """The loop with matrices that are widened before it widened in its body."""
    narrow = {
        p: v for c, p in zip(loop.consts, loop.const_params, strict=True) if (v := _narrow(c, p, loop)) is not None
    }
    if not narrow:
        return loop
    params = {p: parameter(p.node.attrs["name"], v.type) for p, v in narrow.items()}
    env = {p: convert(params[p], p.dtype) for p in narrow} | {p: p for p in loop.body.params if p not in narrow}
    body = Graph(loop.body.name, [params.get(p, p) for p in loop.body.params], clone(loop.body.outputs, env))
    consts = tuple(narrow.get(p, c) for c, p in zip(loop.consts, loop.const_params, strict=True))
    notes.fire("widen a matrix in the loop", loop.node.loc)
    flags = (*loop.x_reverse, *loop.y_reverse)
    return Loop(
        scan_node(
            body, consts, loop.init, loop.xs, length=loop.length, reverse=flags, count=loop.count, until=loop.until
        )
    )  # fmt: skip


def _narrow(const: Value, inside: Value, loop: Loop) -> Value | None:
    """What an operand is before it is widened, moved as it is; None for others, and where no product reads it."""
    moves = []
    v = const
    while Trait.data_movement in v.node.op.traits and len(v.node.inputs) == 1:
        moves.append(v.node)
        v = v.node.inputs[0]
    if not stored_narrow(v) or all(u.op.name != "dot_general" for u in loop.body.users.get(inside, ())):
        return None
    v = v.node.inputs[0]
    for n in reversed(moves):
        v = make(n.op, v, **n.attrs).values[0]
    return v

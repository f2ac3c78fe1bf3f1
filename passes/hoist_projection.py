"""`hoist-projection`: the input's part of a step leaves the loop as one product over all T*B rows.

    loop: x[t] W + h R + b      ->      p = x W + b      loop: p[t] + h R

Left to the kernel's schedule on CPUs with recurrence kernels: a kernel may prefer x[t] W in its own
loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from lstm_ir import ops
from lstm_ir.ir.graph import Graph, Node, Value, make, transform
from lstm_ir.ir.location import at
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ops.primitive.window import slice_axis
from lstm_ir.passes.base import KernelPass, Notes, register
from lstm_ir.passes.hoist import frontier, in_loops, moved_out
from lstm_ir.passes.lift import Dependence, Lift
from lstm_ir.passes.loops import rebuilt

ROWS = (Dependence.forward, Dependence.backward)


@register
@dataclass(frozen=True)
class HoistProjection(KernelPass):
    """Products of scanned rows with loop-invariant matrices move out of the loop."""

    name: ClassVar[str] = "hoist-projection"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with input projections outside its loops."""
        if target is not None and target.kind == "cpu" and self.for_kernels(target):
            notes.miss(f"{target.name} has recurrence kernels, whose schedule places the projection")
            return graph
        return hoisted(graph, notes)


def hoisted(graph: Graph, notes: Notes, pays: Callable[[Loop], bool] | None = None) -> Graph:
    """The graph with the input projections of its loops, or of those where that pays, outside of them."""
    name = HoistProjection.name

    def one(loop: Loop) -> dict[Value, Value] | None:
        if pays is not None and not pays(loop):
            return None
        split = _split_directions(loop, name)
        lift = Lift(split, name)
        heavy = _heavy(split, lift)
        found = [v for v in frontier(split, heavy.__contains__) if v.op != "parameter"]
        if not found:
            return None
        for v in found:
            notes.fire("one product for all steps", v.node.loc)
        rows = [(v, lift.kind[v] is Dependence.backward) for v in found]
        out = moved_out(split, [], rows, lift)
        return dict(zip(loop.node.values, out.values(), strict=True))

    return in_loops(graph, name, one)


def _heavy(loop: Loop, lift: Lift) -> set[Value]:
    """Values with rows that a dot with an invariant matrix leads to."""
    out: set[Value] = set()
    for n in loop.body.nodes:
        if not n.values or lift.kind[n.values[0]] not in ROWS:
            continue
        fixed = [lift.kind[v] is Dependence.fixed for v in n.inputs]
        if (n.op.name == "dot_general" and any(fixed)) or any(v in out for v in n.inputs):
            out.update(n.values)
    return out


def _split_directions(loop: Loop, name: str) -> Loop:
    """A dot batched over directions whose rows come in opposite orders, as one dot per direction.

    Only then can each leave the loop in the order of its own operand.
    """
    lift = Lift(loop, name)

    def one(n: Node) -> list[Value] | None:
        if n.op.name != "dot_general" or n.attrs["lhs_batching_dimensions"][:1] != (0,):
            return None
        if n.attrs["rhs_batching_dimensions"][:1] != (0,) or n.inputs[0].shape[0] != 2:
            return None
        with at(n.loc.through(name)):
            return _per_direction(n, lift)

    # kinds are those of the old body: the rule sees its nodes, not those over a dot that was split
    def known(n: Node) -> list[Value] | None:
        return one(n) if all(v in lift.kind for v in n.inputs) else None

    body = transform(loop.body, known)
    if body is loop.body:
        return loop
    carries = list(zip(loop.init, loop.carry_params, body.outputs[: len(loop.init)], strict=True))
    ys = list(zip(body.outputs[len(loop.init) :], loop.y_reverse, strict=True))
    consts = list(zip(loop.consts, loop.const_params, strict=True))
    xs = list(zip(loop.xs, loop.x_params, loop.x_reverse, strict=True))
    return Loop(rebuilt(body.name, loop, consts, carries, xs, ys))


def _per_direction(n: Node, lift: Lift) -> list[Value] | None:
    lhs, rhs = n.inputs
    if lift.kind[rhs] is not Dependence.fixed or lift.kind[lhs] is not Dependence.carried:
        return None
    rows = [_part(lhs, d, lift) for d in range(2)]
    if any(r is None for r in rows):
        return None
    a = n.attrs
    contracting = a["lhs_contracting_dimensions"], a["rhs_contracting_dimensions"]
    batching = a["lhs_batching_dimensions"], a["rhs_batching_dimensions"]
    parts = [ops.dot_general(r, slice_axis(rhs, 0, d, d + 1), contracting, batching) for d, r in enumerate(rows)]
    return [ops.concat(parts, 0)]


def _part(v: Value, d: int, lift: Lift) -> Value | None:
    """v[d:d+1], cut where the directions are joined; None where that meets a carry."""
    n = v.node
    if Trait.elementwise in n.op.traits and not n.ranges:
        parts = [_part(w, d, lift) for w in n.inputs]
        return None if any(p is None for p in parts) else make(n.op, *parts, **n.attrs).values[0]
    if lift.kind[v] is not Dependence.carried:
        return slice_axis(v, 0, d, d + 1)
    if n.op.name == "concatenate" and n.attrs["dimension"] == 0:
        one_each = len(n.inputs) == 2 and all(w.shape[0] == 1 for w in n.inputs)
        return n.inputs[d] if one_each and lift.kind[n.inputs[d]] is not Dependence.carried else None
    return None

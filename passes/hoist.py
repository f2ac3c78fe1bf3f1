"""What both hoisting passes share: values of a body that move out become operands of the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lstm_ir.ir.graph import Graph, Value, substitute
from lstm_ir.ir.location import at
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait
from lstm_ir.passes.lift import Lift
from lstm_ir.passes.loops import new_param, rebuilt
from lstm_ir.passes.rewrite import with_bodies


def frontier(loop: Loop, moved: Callable[[Value], bool]) -> list[Value]:
    """The last values for which `moved` holds: read by something that stays, or given by the body.

    Where only a rearrangement of a moved value is read, the value before it is taken: a slice costs
    nothing inside, and many slices of one value would be many operands.
    """
    outputs, users = set(loop.body.outputs), loop.body.users
    found: dict[Value, None] = {}
    for n in loop.body.nodes:
        for v in n.values:
            stays = any(not moved(w) for u in users.get(v, ()) for w in u.values)
            if moved(v) and (v in outputs or stays):
                found[_before_rearranged(v, moved)] = None
    return list(found)


def _before_rearranged(v: Value, moved: Callable[[Value], bool]) -> Value:
    while Trait.data_movement in v.node.op.traits and len(v.node.inputs) == 1 and moved(v.node.inputs[0]):
        v = v.node.inputs[0]
    return v


def in_loops(
    graph: Graph, name: str, one: Callable[[Loop], dict[Value, Value] | None], *, until: bool = False
) -> Graph:
    """`one` gives new values for a loop's results, or None; inner loops first. until: loops with `until` too."""
    graph = with_bodies(graph, lambda body: in_loops(body, name, one, until=until))
    new: dict[Value, Value] = {}
    for n in graph.nodes:
        loop = Loop.of(n, until)
        if loop is not None:
            with at(n.loc.through(name)):
                found = one(loop)
            new |= found if found is not None else {}
    read = set(graph.outputs) | set(graph.users)
    return substitute(graph, {v: w for v, w in new.items() if v in read})


def moved_out(loop: Loop, fixed: Sequence[Value], rows: Sequence[tuple[Value, bool]], lift: Lift) -> dict[Value, Value]:
    """Old -> new results, with `fixed` as constants and `rows` (value, reverse) as scanned."""
    env = {v: new_param("moved", v.type) for v in (*fixed, *(v for v, _ in rows))}
    consts = [*zip(loop.consts, loop.const_params, strict=True), *((lift.fixed(v), env[v]) for v in fixed)]
    xs = [*zip(loop.xs, loop.x_params, loop.x_reverse, strict=True), *((lift.rows(v, r), env[v], r) for v, r in rows)]
    carries = list(zip(loop.init, loop.carry_params, loop.next, strict=True))
    ys = list(zip(loop.rows, loop.y_reverse, strict=True))
    node = rebuilt(loop.body.name, loop, consts, carries, xs, ys, env)
    return dict(zip(loop.node.values, node.values, strict=True))

"""What the gradient of `scan` takes apart: what of a body can leave the loop, and what is saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lstm_ir.ir.clone import clone
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.reach import reached, unreached
from lstm_ir.ops.scan.idle import can_stand_before, put_before
from lstm_ir.ops.scan.node import STEP, scan_node

CHEAP = frozenset(
    "add subtract multiply negate abs sign maximum minimum clamp select compare and or xor not "
    "convert reshape transpose broadcast_in_dim slice concatenate pad reverse iota constant dim "
    "in_range is_finite bitcast_convert".split()
)
"""Ops that are run again on the way back rather than saved."""


def lifted(loop: Loop) -> Loop:
    """The same loop with what depends on constants alone computed before it.

    Broadcasts stay inside: their gradient is a sum that can be taken after the loop.
    """
    nodes, own = loop.body.nodes, loop.const_params
    fixed = unreached(loop.body, loop.varying, lambda n: n.op.name != "broadcast_in_dim" and can_stand_before(n, loop))
    fixed = (fixed & reached(nodes, own)) - set(own)
    stay = [n for n in nodes if fixed.isdisjoint(n.values)]
    read = (*(v for n in stay for v in n.inputs), *loop.body.outputs)
    out = dict.fromkeys(v for v in read if v in fixed)
    if not out:
        return loop
    values = list(out)
    known = dict(zip(loop.const_params, loop.consts, strict=True))
    put_before(loop, values, known, "grad")
    outer = [known[v] for v in values]
    name = names_beside(loop.body.params)
    new = [parameter(name(f"lifted{i}"), v.type) for i, v in enumerate(values)]
    results = clone(loop.body.outputs, dict(zip(values, new, strict=True)))
    params = [loop.step, *loop.const_params, *new, *loop.carry_params, *loop.x_params]
    body = Graph(loop.body.name, params, results)
    return Loop(scan_node(
        body, (*loop.consts, *outer), loop.init, loop.xs, length=loop.length,
        reverse=loop.reverse, count=loop.count, until=loop.until,
    ))  # fmt: skip


def later_steps(
    loop: Loop, base: Value, consts: tuple[Value, ...], init: tuple[Value, ...], xs: tuple[Value, ...], length: Dim,
    count: Value | None = None,
) -> Node:  # fmt: skip
    """`length` steps of the loop, the first of which has the number `base`; those from the `count`-th on do not run.

    They must not run on the way back either: past the end a step may divide by zero, and no zero cotangent mends that.
    """
    name = names_beside(loop.body.params)
    step, first = parameter(name("later"), STEP), parameter(name("first"), STEP)
    outputs = clone(loop.body.outputs, {loop.step: first + step})
    body = Graph(loop.body.name, [step, first, *loop.body.params[1:]], outputs)
    return scan_node(body, (base, *consts), init, xs, length=length, reverse=loop.reverse, count=count)


def to_save(
    needed: Iterable[Value], params: Sequence[Value], everything_again: bool
) -> tuple[list[Value], list[Value]]:
    """(parameters, values) from which all `needed` forward values follow by cheap ops alone.

    With `everything_again` no value is saved: the parameters are enough.
    """
    own = set(params)
    seen: set[Value] = set()
    used: dict[Value, None] = {}
    saved: dict[Value, None] = {}
    todo = list(needed)
    while todo:
        v = todo.pop()
        if v in seen:
            continue
        seen.add(v)
        if v in own:
            used[v] = None
        elif v.node.op.name in CHEAP or everything_again or not v.node.inputs:
            todo.extend(v.node.inputs)
        else:
            saved[v] = None
    return [p for p in params if p in used], list(saved)


def names_beside(params: Sequence[Value]) -> Callable[[str], str]:
    """Gives names for further parameters, other than those of `params` and those given before."""
    taken = {p.node.attrs["name"] for p in params}

    def new(base: str) -> str:
        name, n = base, 2
        while name in taken:
            name, n = f"{base}_{n}", n + 1
        taken.add(name)
        return name

    return new

"""`cse`: nodes with the same op, inputs and attributes become one; bodies compare by text.

A loop that reads a value by two names reads it by one, so that its body has no node twice either.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from lstm_ir.ir.congruence import node_key
from lstm_ir.ir.graph import Graph, Node, Value, make_node, map_arg, transform
from lstm_ir.ir.location import Loc, at
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.target import TargetInfo
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.loops import rebuilt
from lstm_ir.passes.rewrite import with_bodies

KEPT = ("parameter", "weight")  # known by name: never one in the place of another


@register
@dataclass(frozen=True)
class Cse(Pass):
    """Common subexpressions computed once; the one that stays names the lines of the others."""

    name: ClassVar[str] = "cse"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph without repeated nodes."""
        graph = _by_one_name(self._merged(graph, notes), notes)
        inside = with_bodies(graph, lambda g: self.run(g, notes, target))
        return graph if inside is graph else self._merged(inside, notes)

    def _merged(self, graph: Graph, notes: Notes) -> Graph:
        """Without repeated nodes beside its bodies."""
        keeper = _keepers(graph)
        merged: dict[Node, list[Node]] = {}
        for n, first in keeper.items():
            if n is not first:
                merged.setdefault(first, []).append(n)
                notes.fire(f"merge {n.op.name}", n.loc)
        return _rebuilt(graph, keeper, merged) if merged else graph


def _by_one_name(graph: Graph, notes: Notes) -> Graph:
    """The graph whose loops have each constant, and each scanned operand in an order, once."""

    def one(n: Node) -> Sequence[Value] | None:
        loop = Loop.of(n, until=True)
        if loop is None:
            return None
        consts = list(zip(loop.consts, loop.const_params, strict=True))
        xs = list(zip(loop.xs, loop.x_params, loop.x_reverse, strict=True))
        read: list[tuple[Hashable, Value]] = [*consts, *(((x, reverse), p) for x, p, reverse in xs)]
        first: dict[Hashable, Value] = {}
        same = {p: found for key, p in read if (found := first.setdefault(key, p)) is not p}
        if not same:
            return None
        notes.fire("read a loop's operand by one name", n.loc)
        carries = list(zip(loop.init, loop.carry_params, loop.next, strict=True))
        ys = list(zip(loop.rows, loop.y_reverse, strict=True))
        once = ([(v, p) for v, p in consts if p not in same], [x for x in xs if x[1] not in same])
        with at(n.loc):
            return rebuilt(loop.body.name, loop, once[0], carries, once[1], ys, same).values

    return transform(graph, one)


def _keepers(graph: Graph) -> dict[Node, Node]:
    """For every node, the first one equal to it."""
    keeper: dict[Node, Node] = {}
    seen: dict[Hashable, Node] = {}
    number: dict[Value, int] = {}
    for n in graph.nodes:
        first = n if n.op.name in KEPT else seen.setdefault(node_key(n, number), n)
        keeper[n] = first
        for v, w in zip(n.values, first.values, strict=True):
            number[v] = number.setdefault(w, len(number))
    return keeper


def _rebuilt(graph: Graph, keeper: dict[Node, Node], merged: dict[Node, list[Node]]) -> Graph:
    env: dict[Value, Value] = {}
    for n in graph.nodes:
        if keeper[n] is not n:
            for v, w in zip(n.values, keeper[n].values, strict=True):
                env[v] = env.get(w, w)
            continue
        args = tuple(map_arg(a, env) for a in n.args)
        loc = _joined(n, merged.get(n, []))
        new = n.with_args(args) if loc is n.loc else make_node(n.op, args, n.attrs, loc)
        if new is not n:
            env.update(zip(n.values, new.values, strict=True))
    return graph.replace([env.get(v, v) for v in graph.outputs])


def _joined(node: Node, others: list[Node]) -> Loc:
    loc = node.loc
    if Trait.leaf in node.op.traits:
        return loc
    for o in others:
        if (o.loc.file, o.loc.line, o.loc.node) != (node.loc.file, node.loc.line, node.loc.node):
            loc = loc.through(f"cse {o.loc.place}")
    return loc

"""`cse`: nodes with the same op, inputs and attributes become one; bodies compare by text."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from lstm_ir.ir.congruence import node_key
from lstm_ir.ir.graph import Graph, Node, Value, make_node, map_arg
from lstm_ir.ir.location import Loc
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.target import TargetInfo
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.rewrite import with_bodies

KEPT = ("parameter", "weight")  # known by name: never one in the place of another


@register
@dataclass(frozen=True)
class Cse(Pass):
    """Common subexpressions computed once; the one that stays names the lines of the others."""

    name: ClassVar[str] = "cse"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph without repeated nodes."""
        graph = with_bodies(graph, lambda g: self.run(g, notes, target))
        keeper = _keepers(graph)
        merged: dict[Node, list[Node]] = {}
        for n, first in keeper.items():
            if n is not first:
                merged.setdefault(first, []).append(n)
                notes.fire(f"merge {n.op.name}", n.loc)
        return _rebuilt(graph, keeper, merged) if merged else graph


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

"""`expand`: composite and foreign ops become core ops, again and again until none is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lstm_ir.ir.errors import PassError, message
from lstm_ir.ir.expansion import expansion
from lstm_ir.ir.graph import Graph, Node, Value, transform
from lstm_ir.ir.opdef import Level
from lstm_ir.ir.target import TargetInfo
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.rewrite import with_bodies

DEPTH = 16  # an op expands into ops of a lower level; a longer chain is a circle


@register
@dataclass(frozen=True)
class Expand(Pass):
    """Every op of level `composite` replaced by its expansion, in bodies too."""

    name: ClassVar[str] = "expand"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph of core ops."""
        for _ in range(DEPTH):
            after = self._once(graph, notes)
            if after is graph:
                return graph
            graph = after
        left = sorted({n.op.name for n in graph.nodes if _composite(n)})
        problem = f"ops still expand after {DEPTH} rounds: {', '.join(left)}"
        raise PassError(message(self.name, problem, (), None, f"graph @{graph.name}"))

    def _once(self, graph: Graph, notes: Notes) -> Graph:
        def one(node: Node) -> Sequence[Value] | None:
            if not _composite(node):
                return None
            notes.fire(f"expand {node.op.name}", node.loc)
            return expansion(node, self.name)

        return transform(with_bodies(graph, lambda g: self.run(g, notes)), one)


def _composite(node: Node) -> bool:
    return node.op.level is Level.composite and node.op.expand is not None

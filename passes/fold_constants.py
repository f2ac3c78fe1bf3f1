"""`fold-constants`: what is computed from small literals becomes a literal; weights never."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import LstmIrError
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.interpret import run_node
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.opdef import Level
from lstm_ir.ir.target import TargetInfo
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.rewrite import Rules, rule, sweep, with_bodies
from lstm_ir.passes.tuned import FOLDED_ELEMENTS

GROWING = ("broadcast_in_dim", "iota", "pad")  # better as they are than written out


@register
@dataclass(frozen=True)
class FoldConstants(Pass):
    """Nodes over literals evaluated by the ops' NumPy meaning, up to `limit` elements each."""

    name: ClassVar[str] = "fold-constants"
    limit: int = FOLDED_ELEMENTS

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with literals in place of what can be computed here."""
        graph = with_bodies(graph, lambda g: self.run(g, notes, target))
        table: Rules = {}

        @rule(table, "*")
        def fold(node: Node) -> list[Value] | None:
            return self._folded(node)

        return sweep(graph, table, self.name, notes)[0]

    def _folded(self, node: Node) -> list[Value] | None:
        if not self._small(node):
            return None
        try:
            known = {v: a for v in node.inputs if (a := _literal(v)) is not None}
            results = run_node(node, known, {})
        except LstmIrError:  # a value out of range is the call's error, not the compiler's
            return None
        return [constant(Data.of(r, v.dtype)) for r, v in zip(results, node.values, strict=True)]

    def _small(self, node: Node) -> bool:
        if node.op.level is not Level.primitive or node.op.name in GROWING:
            return False
        if node.op.name == "dim":
            return isinstance(node.attrs["size"], int) and node.attrs["size"] < 2**31
        if not node.inputs or any(isinstance(a, Graph) for a in node.attrs.values()):
            return False
        if all(v.op == "broadcast_in_dim" for v in node.inputs):  # canonicalize narrows
            return False
        sizes = [_elements(v) for v in (*node.inputs, *node.values)]
        if not all(s is not None and s <= self.limit for s in sizes):
            return False
        return all(_base(v) is not None for v in node.inputs)


def _base(v: Value) -> Value | None:
    """The literal or the count that v is, or repeats."""
    base = v.node.inputs[0] if v.op == "broadcast_in_dim" else v
    if base.op == "iota":
        return base
    return base if base.op == "constant" and base.node.attrs["value"].known else None


def _literal(v: Value) -> Any:
    """The elements of a literal, repeated or not."""
    base = _base(v)
    if base is None:
        return None
    array = run_node(base.node, {}, {})[0]
    return array if base is v else run_node(v.node, {base: array}, {})[0]


def _elements(v: Value) -> int | None:
    return math.prod(int(d) for d in v.shape if isinstance(d, int)) if v.type.is_static else None

"""`widen-rows`: products of rows that became u8 by the range of all of them, as products of floats.

    dynamic_quantize_matmul(x, w, s, z)   ->   x ((w - z) s)

A row's result no longer depends on the other rows, and the passes and kernels for products of floats take it:
`precision` then stores its weights as integers, and gives each row a range of its own. The results change by the
rounding of rows, so no target's pipeline has this pass: the words int8 and int8-dynamic of option precision begin
with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lstm_ir.ir.graph import Graph, Node, Value, transform
from lstm_ir.ir.location import at
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ops.nn.quantized import DYNAMIC_QUANTIZE_MATMUL, product_of_floats
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.rewrite import with_bodies


@register
@dataclass(frozen=True)
class WidenRows(Pass):
    """Every `dynamic_quantize_matmul` as a product of floats, in bodies too."""

    name: ClassVar[str] = "widen-rows"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with products of floats."""

        def one(node: Node) -> Sequence[Value] | None:
            if node.op is not DYNAMIC_QUANTIZE_MATMUL:
                return None
            notes.fire("rows stay floats", node.loc)
            with at(node.loc.through(self.name)):
                return (product_of_floats(node),)

        return transform(with_bodies(graph, lambda g: self.run(g, notes, target)), one)

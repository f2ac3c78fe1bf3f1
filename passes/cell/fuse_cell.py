"""`fuse-cell`: a cell written with primitives becomes `lstm`, `gru` or `rnn`.

A scan whose body is such a cell becomes the op over all steps; outside of loops, a single LSTM or
GRU step becomes the op with T = 1, and such steps one after the other become one op over all. The
op has the gradient from saved gates, a layer's fused schedule, and stacks with its other direction.

What the cell's values are read by must be the op's results: a pre-activation or gate that something
else needs leaves the cell as it is, with the reason noted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lstm_ir.ir.graph import Graph
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ops.core.roll import rolled
from lstm_ir.passes.base import Notes, Pass, register
from lstm_ir.passes.cell.loop import LoopCell
from lstm_ir.passes.cell.step import Steps
from lstm_ir.passes.hoist import in_loops


@register
@dataclass(frozen=True)
class FuseCell(Pass):
    """Cells among primitives -> core ops, in loops and outside of them."""

    name: ClassVar[str] = "fuse-cell"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph with core recurrent ops."""
        graph = in_loops(graph, self.name, lambda loop: LoopCell(loop, self.name, notes).fused())
        graph = Steps(graph, self.name, notes).fused()
        return rolled(graph, lambda n, many: notes.fire(f"{many} steps into one {n.op.name}", n.loc))

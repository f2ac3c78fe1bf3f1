"""`unroll-loops`: a short loop inside of another one is written out, so that the outer one can be a kernel.

    loop: h = scan(6 steps: h + dt f(h, x[t]))      ->      loop: h1 = h + dt f(h, x[t]); ... h6

Steps of a solver, of an iteration to a fixed point, a product over an axis (`li.prod`). A kernel holds one loop over
time. Loops whose steps the call counts, or a flag ends, stay. Gradients are made of such bodies already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ops.scan.unrolled import is_short, of_known_steps, written_out
from lstm_ir.passes.base import KernelPass, Notes, register
from lstm_ir.passes.hoist import in_loops
from lstm_ir.passes.rewrite import with_bodies


@register
@dataclass(frozen=True)
class UnrollLoops(KernelPass):
    """Loops of few steps in the bodies of others are straight lines; only kernels need that."""

    name: ClassVar[str] = "unroll-loops"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph, whose own loops stay."""
        if not self.for_kernels(target):
            return graph

        def one(loop: Loop) -> dict[Value, Value] | None:
            if not is_short(loop):
                if of_known_steps(loop):
                    ops = len(loop.body.nodes)
                    notes.miss(f"a loop of {loop.length} steps of {ops} ops stays in another one", loop.node.values[0])
                return None
            notes.fire(f"{loop.length} steps are written out", loop.node.loc)
            return dict(zip(loop.node.values, written_out(loop), strict=True))

        return with_bodies(graph, lambda body: in_loops(body, self.name, one))

"""`chunk-states`: a loop with a matrix state is products of chunks of its steps, and a loop over the chunks.

    loop: S = a[t] S + k[t] v[t]^T, y[t] = q[t] . S      ->      Y = (Q K^T * decays) V + decays Q S
                                                                 loop over chunks: S = decay S + (K * decays)^T V

A delta rule, of which v depends on S[t-1], is a triangular system in each chunk, where all states of a step are large.
The forms stand in `ops/scan/chunks.py` and `delta.py`; gradients of such loops are taken through them (`grad.py`).
A kernel keeps the state in a cache and runs the steps sooner than products of chunks are made: where loops become
kernels they are left as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lstm_ir.ir.errors import PassError
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ops.scan.chunkwise import chunkwise
from lstm_ir.passes.base import KernelPass, Notes, register
from lstm_ir.passes.hoist import in_loops

LOOPS = 64  # matrix states of one loop, at most: each round takes one


@register
@dataclass(frozen=True)
class ChunkStates(KernelPass):
    """Matrix states of loops by products of chunks, on CPUs without kernels, or (`on=all`) for any target."""

    name: ClassVar[str] = "chunk-states"
    on: str = "cpu"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.on not in ("cpu", "all"):
            raise PassError(f"pass {self.name}: on is {self.on!r}, not one of cpu, all")

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph without loops over steps of matrix states; each round takes one state of every loop."""

        if self.on == "cpu" and (target is None or target.kind != "cpu" or self.for_kernels(target)):
            return graph

        left: dict[tuple[str, str], Value] = {}  # states that stay, once, however often they are looked at

        def one(loop: Loop) -> dict[Value, Value] | None:
            values, why = chunkwise(loop, anyway=self.on == "all")
            if values is None:
                for reason in why:
                    left[loop.node.loc.place, reason] = loop.node.values[0]
                return None
            notes.fire("a matrix state by chunks", loop.node.loc)
            return dict(zip(loop.node.values, values, strict=True))

        for _ in range(LOOPS):
            after = in_loops(graph, self.name, one)
            if after is graph:
                break
            graph = after
        for (_, reason), value in left.items():
            notes.miss(f"{reason} stays a loop over steps", value)
        return graph

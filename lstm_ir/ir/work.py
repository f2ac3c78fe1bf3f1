"""How much a graph computes: what a choice of schedule can know before a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait


@dataclass(frozen=True, slots=True)
class CallWork:
    """What is known of an entry's calls before they come: from it and their sizes follows who runs them."""

    operations: Dim  # of a call
    loops: int  # loops and products
    published: int  # kernels that helper threads may take part in

    def known(self) -> int | None:
        """The operations, where no call changes them."""
        return self.operations if isinstance(self.operations, int) else None

    def at(self, sizes: Mapping[str, int]) -> int | None:
        """The operations of a call with these sizes; None where one of them is not among these."""
        if not dims.names(self.operations) <= sizes.keys():
            return None
        return dims.evaluate(self.operations, sizes)


def operations(graph: Graph) -> Dim:
    """Additions and multiplications of products, and one for each result of an elementwise op.

    An expression of the named sizes. Of the scheduled stage: an op that stands for others counts as
    nothing.
    """
    total: Dim = 0
    for n in graph.nodes:
        total = dims.add(total, _of(n))
    return total


def loops(graph: Graph) -> int:
    """Loops and products: what is between them has one thread."""
    return sum(n.op.name in ("scan", "dot_general", "stencil") for n in graph.nodes)


def _of(n: Node) -> Dim:
    loop = Loop.of(n)
    if loop is not None:
        return dims.mul(loop.length, operations(loop.body))
    if n.op.name == "dot_general":
        lhs = n.inputs[0].shape
        over = tuple(lhs[a] for a in n.attrs["lhs_contracting_dimensions"])
        return dims.product((2, *n.types[0].shape, *over))
    if n.op.name == "stencil":
        _, _, each, taps = n.inputs[1].shape
        return dims.product((2, *n.types[0].shape, each, taps))
    if Trait.elementwise in n.op.traits:
        return dims.product(n.types[0].shape)
    return 0

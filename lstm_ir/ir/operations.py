"""How much a graph computes, counted from its nodes."""

from __future__ import annotations

from math import prod

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Node
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait


def operations(graph: Graph) -> Dim:
    """Additions and multiplications of products, and one for each result of an elementwise op.

    An expression of the named sizes. Of the scheduled stage: an op that stands for others counts as
    nothing.
    """
    return dims.total(_of(n) for n in graph.nodes)


def loops(graph: Graph) -> int:
    """Loops and products: what is between them has one thread."""
    return sum(n.op.name in ("scan", "dot_general", "stencil", "stencil_grad") for n in graph.nodes)


def _of(n: Node) -> Dim:
    loop = Loop.of(n, until=True)
    if loop is not None:
        return dims.mul(loop.length, operations(loop.body))
    if n.op.name == "dot_general":
        lhs = n.inputs[0].shape
        over = tuple(lhs[a] for a in n.attrs["lhs_contracting_dimensions"])
        return dims.product((2, *n.types[0].shape, *over))
    if n.op.name == "stencil":
        _, _, each, taps = n.inputs[1].shape
        return dims.floordiv(dims.product((2, *n.types[0].shape, each, taps)), prod(n.attrs["spacing"]))
    if n.op.name == "stencil_grad":
        batch, *_, height, width = n.inputs[1].shape
        return dims.floordiv(dims.product((2, *n.types[0].shape, batch, height, width)), prod(n.attrs["spacing"]))
    if Trait.elementwise in n.op.traits:
        return dims.product(n.types[0].shape)
    return 0

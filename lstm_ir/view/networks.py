"""A graph as networkx sees it: for generations, longest paths, subgraph matching and drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lstm_ir.ir.graph import Graph

if TYPE_CHECKING:
    import networkx


def to_networkx(graph: Graph) -> networkx.MultiDiGraph[Any]:
    """Nodes are the graph's nodes, in its order; one edge per operand.

    An edge carries `value` (what is read) and `operand` (the number of the flat operand).
    """
    import networkx

    out = networkx.MultiDiGraph(name=graph.name)
    out.add_nodes_from(graph.nodes)
    for n in graph.nodes:
        for i, v in enumerate(n.inputs):
            out.add_edge(v.node, n, value=v, operand=i)
    return out

"""Which values of a graph depend on weights alone and are worth computing once, at load."""

from __future__ import annotations

from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.moves import stored_narrow
from lstm_ir.ir.reach import fixed, reached
from lstm_ir.ir.sizes import sizes_of

_IN_THE_CALL = {
    "broadcast_in_dim",  # repeats elements: holding its result costs memory and saves nothing
    "scan",  # IREE compiles no loop of StableHLO in an initializer (docs/iree-workarounds.md)
    "scatter_add",  # nor a scatter
}


def derived_values(graph: Graph, narrow: bool) -> tuple[Value, ...]:
    """The last weight-only values before something else reads them, in graph order.

    narrow: products read matrices in fewer bits as they are, so these are not held wide.
    """
    of_weights = reached(graph.nodes, graph.weights.values())

    def kept(n: Node) -> bool:
        return _kept(n) and not (narrow and _read_narrow(graph, n))

    made = {v for v in fixed(graph, through=kept) & of_weights if v.node.inputs}
    outputs = set(graph.outputs)
    wanted = []
    for n in graph.nodes:
        for v in n.values:
            users = graph.users.get(v, ())
            if v in made and (v in outputs or any(u.values[0] not in made for u in users)):
                wanted.append(v)
    return tuple(wanted)


def _kept(n: Node) -> bool:
    """Whether results are held where a call needs them: not repeats, nor loops, nor what depends on a call's size."""
    return n.op.name not in _IN_THE_CALL and not sizes_of([n])


def _read_narrow(graph: Graph, n: Node) -> bool:
    """Whether all that a node gives is a matrix in fewer bits, widened for products alone."""
    users = graph.users.get(n.values[0], ()) if len(n.values) == 1 else ()
    matrix = bool(users) and n.values[0] not in graph.outputs and stored_narrow(n.values[0])
    return matrix and all(u.op.name == "dot_general" and u.inputs[0] is not n.values[0] for u in users)

"""Which values of a graph depend on weights alone and are worth computing once, at load."""

from __future__ import annotations

from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.reach import fixed, reached

# These only repeat elements: holding their results costs memory and saves nothing.
_CHEAP = {"broadcast_in_dim"}


def derived_values(graph: Graph) -> tuple[Value, ...]:
    """The last weight-only values before something else reads them, in graph order."""
    of_weights = reached(graph.nodes, graph.weights.values())
    made = {v for v in fixed(graph, through=_kept) & of_weights if v.node.inputs}
    outputs = set(graph.outputs)
    wanted = []
    for n in graph.nodes:
        for v in n.values:
            users = graph.users.get(v, ())
            if v in made and (v in outputs or any(u.values[0] not in made for u in users)):
                wanted.append(v)
    return tuple(wanted)


def _kept(n: Node) -> bool:
    """Whether results are held where a call needs them: not repeats, nor what has a call's size."""
    return n.op.name not in _CHEAP and all(t.is_static for t in n.types)

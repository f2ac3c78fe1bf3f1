"""Which values of a graph depend on weights alone and are worth computing once, at load."""

from __future__ import annotations

from lstm_ir.ir.graph import Graph, Value

# These only repeat elements: holding their results costs memory and saves nothing.
_CHEAP = {"broadcast_in_dim", "iota", "constant", "dim"}


def derived_values(graph: Graph) -> tuple[Value, ...]:
    """The last weight-only values before something else reads them, in graph order."""
    only: set[Value] = set()
    made: set[Value] = set()  # weight-only and not a weight itself
    for n in graph.nodes:
        if n.op.name in ("weight", "constant"):
            only.update(n.values)
        elif n.inputs and n.op.name not in _CHEAP and all(v in only for v in n.inputs):
            if not all(t.is_static for t in n.types) or not _reads_weight(n.inputs, made):
                continue
            only.update(n.values)
            made.update(n.values)
    outputs = set(graph.outputs)
    wanted = []
    for n in graph.nodes:
        for v in n.values:
            users = graph.users.get(v, ())
            if v in made and (v in outputs or any(u.values[0] not in made for u in users)):
                wanted.append(v)
    return tuple(wanted)


def _reads_weight(inputs: tuple[Value, ...], made: set[Value]) -> bool:
    return any(v.op == "weight" or v in made for v in inputs)

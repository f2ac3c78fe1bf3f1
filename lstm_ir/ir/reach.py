"""Which values depend on which: what given values reach, and what they leave alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lstm_ir.ir.graph import Graph, Node, Value


def reached(nodes: Sequence[Node], sources: Iterable[Value]) -> set[Value]:
    """The sources, and the values among `nodes` (in order) that depend on them.

    What makes a source is not asked: a source depends on itself alone.
    """
    found = set(sources)
    ends = frozenset(found)
    for n in nodes:
        if any(v in found for v in n.inputs):
            found.update(v for v in n.values if v not in ends)
    return found


def unreached(graph: Graph, sources: Iterable[Value], through: Callable[[Node], bool] = lambda n: True) -> set[Value]:
    """The graph's values that depend on no source, and on no result of a node without `through`."""
    cut = [v for n in graph.nodes if n.inputs and not through(n) for v in n.values]
    touched = reached(graph.nodes, [*sources, *cut])
    return {v for n in graph.nodes for v in n.values if v not in touched}


def fixed(graph: Graph, known: Iterable[Value] = (), through: Callable[[Node], bool] = lambda n: True) -> set[Value]:
    """The values whose elements weights, literals and `known` alone decide.

    Their shapes may have sizes that only a call knows; what counts such a size depends on the call.
    """
    given = set(known)
    brought = [v for n in graph.nodes if not n.inputs and _by_call(n) for v in n.values if v not in given]
    return unreached(graph, brought, through)


def _by_call(leaf: Node) -> bool:
    """Whether a call decides a leaf: an input, or a size that has a name."""
    if leaf.op.name == "dim":
        return not isinstance(leaf.attrs["size"], int)
    return leaf.op.name == "parameter" or not all(t.is_static for t in leaf.types)


def parameters_of(graph: Graph) -> dict[Value, frozenset[Value]]:
    """The parameters that every value of a graph depends on."""
    out: dict[Value, frozenset[Value]] = {}
    for n in graph.nodes:
        if n.op.name == "parameter":
            out[n.values[0]] = frozenset(n.values)
            continue
        found = frozenset[Value]().union(*(out[v] for v in n.inputs))
        out.update(dict.fromkeys(n.values, found))
    return out

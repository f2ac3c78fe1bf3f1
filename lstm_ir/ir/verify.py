"""Whole-graph checks: every type and size again, after every pass."""

from __future__ import annotations

from lstm_ir.ir.errors import VerifyError, message
from lstm_ir.ir.graph import Graph, check_structure, operand_types
from lstm_ir.ir.opdef import Level
from lstm_ir.ir.sizes import sizes_of_attribute

DEPTH = 32  # bodies nested deeper are refused: generic walks over bodies recurse


def _check_sizes(graph: Graph, outer: frozenset[str]) -> frozenset[str]:
    names = outer.union(*(p.type.names for p in graph.params))
    for n in graph.nodes:
        have: list[tuple[object, set[str]]] = [(t, t.names) for t in n.types]
        have += [(k, sizes_of_attribute(a)) for k, a in n.attrs.items() if not isinstance(a, Graph)]
        for holder, found in have:
            if not found <= names:
                problem = f"the size {min(found - names)} of {holder} is in no input's shape"
                where = f"graph @{graph.name}"
                raise VerifyError(message(n.op.name, problem, operand_types(n.op, n.args), n.loc, where))
    return names


def verify(
    graph: Graph, levels: frozenset[Level] | None = None, depth: int = 0, outer: frozenset[str] = frozenset()
) -> None:
    """Derive every type again and compare; with `levels`, refuse ops of another stage.

    A size's name must occur in an input's shape, or, in a body, in the graph around it (`outer`).
    """
    if depth > DEPTH:
        raise VerifyError(f"graph: bodies nest deeper than {DEPTH}\n  in graph @{graph.name}")
    check_structure(graph)
    names = _check_sizes(graph, outer)
    for n in graph.nodes:
        if n.results_by_rule != n.results:
            problem = f"its result types are {list(n.types)}; its rule gives {[t for _, t in n.results_by_rule]}"
            raise VerifyError(message(n.op.name, problem, operand_types(n.op, n.args), n.loc))
        if levels is not None and n.op.level not in levels:
            raise VerifyError(message(n.op.name, f"a {n.op.level.value} op is left at this stage", (), n.loc))
        for a in n.attrs.values():
            if isinstance(a, Graph):
                verify(a, levels, depth + 1, names)

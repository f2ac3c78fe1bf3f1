"""Whole-graph checks: structure when a graph is made, types again after every pass."""

from __future__ import annotations

from collections.abc import Iterable

from lstm_ir.ir.errors import VerifyError, message
from lstm_ir.ir.graph import Graph, Value, make_node, operand_types
from lstm_ir.ir.opdef import Level

DEPTH = 32  # bodies nested deeper are refused: generic walks over bodies recurse


def check_structure(graph: Graph) -> None:
    """Names are unique and every parameter is an input."""
    where = f"graph @{graph.name}"
    if not isinstance(graph.name, str) or not graph.name.isidentifier():
        raise VerifyError(f"graph: the name {graph.name!r} is not an identifier")
    for what, values in (("input", graph.params), ("output", graph.outputs)):
        for v in values:
            if not isinstance(v, Value):
                raise VerifyError(f"graph: an {what} is {type(v).__name__}, not a value of the graph\n  in {where}")
    for p in graph.params:
        if p.op != "parameter":
            raise VerifyError(f"graph: an input is a value of {p.op}, not of li.input\n  in {where}")
    _unique(graph.input_names, "input", where)
    _unique(graph.output_names, "output", where)
    inputs = set(graph.params)
    weights: dict[str, object] = {}
    for n in graph.nodes:
        if n.op.name == "parameter" and n.values[0] not in inputs:
            problem = f"reads {n.attrs['name']!r}, which is not an input of the graph"
            raise VerifyError(message("graph", problem, (), n.loc, where))
        if n.op.name == "weight" and weights.setdefault(n.attrs["name"], n) is not n:
            problem = f"two weights are called {n.attrs['name']!r}"
            raise VerifyError(message("weight", problem, (), n.loc, where))


def _check_sizes(graph: Graph, outer: frozenset[str]) -> frozenset[str]:
    names = outer.union(*(p.type.names for p in graph.params))
    for n in graph.nodes:
        for t in n.types:
            missing = t.names - names
            if missing:
                problem = f"the size {min(missing)} of {t} is in no input's shape"
                where = f"graph @{graph.name}"
                raise VerifyError(message(n.op.name, problem, operand_types(n.op, n.args), n.loc, where))
    return names


def _unique(names: Iterable[str], what: str, where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name:
            raise VerifyError(f"graph: an {what} has no name\n  in {where}")
        if name in seen:
            raise VerifyError(f"graph: two {what}s are called {name!r}\n  in {where}")
        seen.add(name)


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
        again = make_node(n.op, n.args, n.attrs, n.loc)
        if again.results != n.results:
            problem = f"its result types are {list(n.types)}; its rule gives {list(again.types)}"
            raise VerifyError(message(n.op.name, problem, operand_types(n.op, n.args), n.loc))
        if levels is not None and n.op.level not in levels:
            raise VerifyError(message(n.op.name, f"a {n.op.level.value} op is left at this stage", (), n.loc))
        for a in n.attrs.values():
            if isinstance(a, Graph):
                verify(a, levels, depth + 1, names)

"""Local rules run to a bounded fixed point, and rewrites carried into the bodies of loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from lstm_ir.ir.errors import PassError, message
from lstm_ir.ir.graph import Graph, Node, Value, make, transform
from lstm_ir.ir.location import at
from lstm_ir.passes.base import Notes

LocalRule: TypeAlias = "Callable[[Node], Value | Sequence[Value] | None]"
Rules: TypeAlias = "dict[str, list[tuple[str, LocalRule]]]"
"""By op name (or "*" for every op): the rules that are tried, in order."""

ROUNDS = 64


def rule(table: Rules, *ops: str) -> Callable[[LocalRule], LocalRule]:
    """Add a rule for these ops; its name is that of the function."""

    def add(f: LocalRule) -> LocalRule:
        for op in ops:
            table.setdefault(op, []).append((f.__name__.strip("_").replace("_", " "), f))
        return f

    return add


def with_bodies(graph: Graph, run: Callable[[Graph], Graph]) -> Graph:
    """`graph` with `run` applied to every body; the same object where no body changed."""

    def one(node: Node) -> Sequence[Value] | None:
        bodies = {k: b for k, b in node.attrs.items() if isinstance(b, Graph)}
        new = {k: run(b) for k, b in bodies.items()}
        if all(new[k] is b for k, b in bodies.items()):
            return None
        return make(node.op, *node.args, loc=node.loc, **{**node.attrs, **new}).values

    if not any(isinstance(a, Graph) for n in graph.nodes for a in n.attrs.values()):
        return graph
    return transform(graph, one)


def sweep(graph: Graph, table: Rules, name: str, notes: Notes) -> tuple[Graph, Counter[str]]:
    """Every rule tried once on every node: the new graph, and how often which rule fired."""
    fired: Counter[str] = Counter()

    def one(node: Node) -> Sequence[Value] | None:
        for what, f in (*table.get(node.op.name, ()), *table.get("*", ())):
            with at(node.loc.through(name)):
                out = f(node)
            if out is None:
                continue
            new = (out,) if isinstance(out, Value) else tuple(out)
            if any(a is not b for a, b in zip(new, node.values, strict=True)):
                fired[what] += 1
                notes.fire(what, node.loc)
                return new
        return None

    return transform(graph, one), fired


def fixed_point(
    graph: Graph, table: Rules, name: str, notes: Notes, also: Callable[[Graph], Graph] | None = None
) -> Graph:
    """Sweeps until nothing fires; PassError names the rules that still fire after ROUNDS sweeps.

    also: a whole-graph rewrite done after each sweep.
    """
    fired: Counter[str] = Counter()
    for _ in range(ROUNDS):
        after, fired = sweep(graph, table, name, notes)
        after = after if also is None else also(after)
        if after is graph:
            return graph
        graph = after
    shown = ", ".join(f"{k} ({n})" for k, n in sorted(fired.items())) or "none"
    problem = f"no fixed point after {ROUNDS} rounds; rules still firing: {shown}"
    raise PassError(message(name, problem, (), None, f"graph @{graph.name}"))

"""Trees of values: what a function over values takes and gives, as lists and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lstm_ir.ir.clone import clone, needed
from lstm_ir.ir.graph import Graph, Node, Value, resolved, topological
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.reach import reached

Tree = Any  # a value, None, or tuples, lists and dicts of trees


def flatten(tree: Tree, out: list[Value] | None = None) -> list[Value]:
    """The values of a tree, in order."""
    out = [] if out is None else out
    if isinstance(tree, Value):
        out.append(resolved(tree))
    elif isinstance(tree, dict):
        for k in tree:
            flatten(tree[k], out)
    elif isinstance(tree, (tuple, list)):
        for t in tree:
            flatten(t, out)
    elif tree is not None:
        out.append(constant(tree))
    return out


def unflatten(tree: Tree, values: list[Any]) -> Tree:
    """The tree again, over other values; takes them from the front of `values`."""
    if isinstance(tree, dict):
        return {k: unflatten(t, values) for k, t in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(unflatten(t, values) for t in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(unflatten(t, values) for t in tree)
    return None if tree is None else values.pop(0)


def captured(outputs: list[Value], own: set[Value]) -> list[Value]:
    """Inputs and weights of the surrounding graph that `outputs` read, those of `own` excluded."""
    return _leaves(topological(v.node for v in outputs), own)


def captured_beside_loops(outputs: list[Value], own: set[Value]) -> list[Value]:
    """These, and what loops around give.

    What else follows from them is computed by the body again, and moved out by a pass. A loop is not: it would run in
    each step, and those that it reads in each of its own.
    """
    nodes = list(topological(v.node for v in outputs))
    loops = [n for n in nodes if n.op.name == "scan"]
    inside = reached(nodes, own) if loops else set()
    results = {v for n in loops for v in n.values if v not in inside}
    here = needed([v.node for v in outputs], results)
    read = dict.fromkeys([*(v for n in here for v in n.inputs), *outputs])
    return [*_leaves(here, own), *(v for v in read if v in results)]


def _leaves(nodes: Iterable[Node], own: set[Value]) -> list[Value]:
    return [n.values[0] for n in nodes if n.op.name in ("parameter", "weight") and n.values[0] not in own]


def closed(name: str, params: list[Value], outputs: list[Value], lifted: dict[Value, Value]) -> Graph:
    """A body over its parameters alone; `lifted`: parameters for what is read from outside."""
    # Values, not a graph: what is read from a body outside may be called as this one's own rows are.
    return Graph(name if name.isidentifier() else "cell", params, clone(outputs, dict(lifted)))

"""A graph with some of its named sizes fixed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Value, make_node, map_arg
from lstm_ir.ir.leaf import parameter


def bind_sizes(graph: Graph, sizes: Mapping[str, Dim]) -> Graph:
    """The same graph where the names in `sizes` are those sizes, in inputs, attributes and
    bodies.
    """
    env: dict[Value, Value] = {}
    for n in graph.nodes:
        if n.op.name == "parameter":
            env[n.values[0]] = parameter(n.attrs["name"], n.types[0].bind(sizes))
            continue
        attrs = {k: bind_attribute(v, sizes) for k, v in n.attrs.items()}
        new = make_node(n.op, tuple(map_arg(a, env) for a in n.args), attrs, n.loc)
        env.update(zip(n.values, new.values, strict=True))
    return graph.replace([env[v] for v in graph.outputs], [env[p] for p in graph.params])


def bind_attribute(value: Any, sizes: Mapping[str, Dim]) -> Any:
    """An attribute with names replaced."""
    if isinstance(value, dims.Expr):
        return dims.substitute(value, sizes)
    if isinstance(value, tuple):
        return tuple(bind_attribute(v, sizes) for v in value)
    if isinstance(value, Graph):
        return bind_sizes(value, sizes)
    return value

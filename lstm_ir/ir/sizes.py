"""Which named sizes nodes depend on: those of what they give, of their attributes, and of their bodies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lstm_ir.ir import dims
from lstm_ir.ir.graph import Graph, Node


def sizes_of(nodes: Iterable[Node]) -> set[str]:
    """The names."""
    found: set[str] = set()
    for n in nodes:
        found.update(*(t.names for t in n.types))
        found.update(*map(sizes_of_attribute, n.attrs.values()))
    return found


def sizes_of_attribute(value: Any) -> set[str]:
    """The names in a size, in several, or in a body."""
    if isinstance(value, dims.Expr):
        return dims.names(value)
    if isinstance(value, tuple):
        return set().union(*map(sizes_of_attribute, value))
    return sizes_of(value.nodes) if isinstance(value, Graph) else set()

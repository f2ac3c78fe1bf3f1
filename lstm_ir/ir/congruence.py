"""Which nodes compute the same: equal ops, attributes and operands."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from lstm_ir.ir.data import Data
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.opdef import Trait


def node_key(node: Node, number: Mapping[Value, int]) -> Hashable:
    """Equal for nodes of one meaning, where equal numbers mean equal operands."""
    args: list[Hashable] = [
        None if a is None else tuple(number[v] for v in a) if isinstance(a, tuple) else number[a] for a in node.args
    ]
    if Trait.commutative in node.op.traits:
        args.sort(key=str)
    return node.op.name, tuple(args), tuple(map(attr_key, node.attrs.values()))


def attr_key(value: Any) -> Hashable:
    """Equal for equal attribute values only: 1, 1.0 and True differ, so do 0.0 and -0.0."""
    if isinstance(value, tuple):
        return tuple(map(attr_key, value))
    if isinstance(value, Data):
        return value.sha256
    if isinstance(value, Graph):
        return str(value)
    return type(value).__name__, repr(value) if isinstance(value, float) else value

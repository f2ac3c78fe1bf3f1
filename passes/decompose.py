"""`decompose`: `lstm`, `gru`, `rnn` and their gradients become one time-major `scan` each.

The result has one rolled loop per layer, both directions in it, the gates of a step in one product:
a bidirectional layer is one loop, not two, and compile time does not depend on T. A convolution becomes
one product: IREE 3.13 refuses some convolutions, makes others take too much stack, and is slow at the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lstm_ir.ir.expansion import expansion
from lstm_ir.ir.graph import Graph, Node, Value, make, transform
from lstm_ir.ir.location import at
from lstm_ir.ir.opdef import Level, Op
from lstm_ir.ir.target import TargetInfo
from lstm_ir.passes.base import Notes, Pass, register


@register
@dataclass(frozen=True)
class Decompose(Pass):
    """Core ops -> `scan` and primitives, in bodies too."""

    name: ClassVar[str] = "decompose"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph without core ops."""
        return decompose(graph, notes)


def decompose(graph: Graph, notes: Notes | None = None) -> Graph:
    """Every op of level `core` replaced by its expansion, until none is left."""
    seen = Notes() if notes is None else notes

    def rule(node: Node) -> Sequence[Value] | None:
        if node.op.level is Level.core and node.op.expand is not None:
            seen.fire(f"decompose {node.op.name}", node.loc)
            return expanded(node)
        return _with_bodies(node, seen)

    after = transform(graph, rule)
    return after if after is graph else decompose(after, seen)


def expanded(node: Node) -> tuple[Value, ...]:
    """The results of `node` by its expansion, at the node's line."""
    return expansion(node, "decompose")


def _with_bodies(node: Node, notes: Notes) -> Sequence[Value] | None:
    bodies = {k: b for k, b in node.attrs.items() if isinstance(b, Graph)}
    new = {k: decompose(b, notes) for k, b in bodies.items()}
    if all(new[k] is b for k, b in bodies.items()):
        return None
    return _rebuilt(node.op, node, new)


def _rebuilt(op: Op, node: Node, bodies: dict[str, Graph]) -> tuple[Value, ...]:
    with at(node.loc):
        return make(op, *node.args, **{**node.attrs, **bodies}).values

"""`decompose`: `lstm`, `gru`, `rnn` and their gradients become one time-major `scan` each.

The result has one rolled loop per layer, both directions in it, the gates of a step in one product:
a bidirectional layer is one loop, not two, and compile time does not depend on T. A convolution becomes
one product: IREE 3.13 refuses some convolutions, makes others take too much stack, and is slow at the rest.

A layer of one step is a loop of one step on CPUs, where it is a kernel. Elsewhere it is written out, as products of
their own have a whole GPU, and so is it in the body of a loop: a loop in a body keeps that from being a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lstm_ir.ir.clone import clone
from lstm_ir.ir.expansion import expansion
from lstm_ir.ir.graph import Graph, Node, Value, make, transform
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.location import at
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Level, Op
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ops.primitive.shape import reshape
from lstm_ir.passes.base import Notes, Pass, register


@register
@dataclass(frozen=True)
class Decompose(Pass):
    """Core ops -> `scan` and primitives, in bodies too."""

    name: ClassVar[str] = "decompose"

    def run(self, graph: Graph, notes: Notes, target: TargetInfo | None = None) -> Graph:
        """The graph without core ops."""
        return decompose(graph, notes, single_steps=target is not None and target.kind == "cpu")


def decompose(graph: Graph, notes: Notes | None = None, single_steps: bool = False) -> Graph:
    """Every op of level `core` replaced by its expansion, until none is left; whether loops of one step stay."""
    return _decomposed(graph, Notes() if notes is None else notes, single_steps)


def _decomposed(graph: Graph, notes: Notes, single_steps: bool) -> Graph:
    def rule(node: Node) -> Sequence[Value] | None:
        if node.op.level is Level.core and node.op.expand is not None:
            notes.fire(f"decompose {node.op.name}", node.loc)
            return expanded(node)
        loop = Loop.of(node)
        if not single_steps and loop is not None and loop.length == 1 and loop.count is None:
            return written_out(loop)
        return _with_bodies(node, notes)

    after = transform(graph, rule)
    return after if after is graph else _decomposed(after, notes, single_steps)


def written_out(loop: Loop) -> list[Value]:
    """The results of a loop of one step."""
    env = dict(zip(loop.const_params, loop.consts, strict=True)) | dict(zip(loop.carry_params, loop.init, strict=True))
    with at(loop.node.loc):
        env |= {row: reshape(x, row.shape) for row, x in zip(loop.x_params, loop.xs, strict=True)}
        out = clone(loop.body.outputs, {**env, loop.step: constant(0)})
        rows = [reshape(v, t.shape) for v, t in zip(out[loop.first_row :], loop.y_types, strict=True)]
    return [*out[: loop.first_row], *rows]


def expanded(node: Node) -> tuple[Value, ...]:
    """The results of `node` by its expansion, at the node's line."""
    return expansion(node, "decompose")


def _with_bodies(node: Node, notes: Notes) -> Sequence[Value] | None:
    bodies = {k: b for k, b in node.attrs.items() if isinstance(b, Graph)}
    new = {k: _decomposed(b, notes, single_steps=False) for k, b in bodies.items()}
    if all(new[k] is b for k, b in bodies.items()):
        return None
    return _rebuilt(node.op, node, new)


def _rebuilt(op: Op, node: Node, bodies: dict[str, Graph]) -> tuple[Value, ...]:
    with at(node.loc):
        return make(op, *node.args, **{**node.attrs, **bodies}).values

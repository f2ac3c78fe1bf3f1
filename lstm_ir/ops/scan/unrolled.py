"""Short loops as straight lines, where another loop holds them: steps of a solver, a product over an axis."""

from __future__ import annotations

from collections.abc import Sequence

from lstm_ir.ir.clone import clone
from lstm_ir.ir.graph import Graph, Node, Value, transform
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.location import at
from lstm_ir.ir.loop import Loop
from lstm_ir.ops.primitive.shape import squeeze, stack
from lstm_ir.ops.primitive.window import slice_axis
from lstm_ir.ops.scan.node import scan_node
from lstm_ir.ops.scan.tuned import UNROLLED_NODES, UNROLLED_STEPS


def of_known_steps(loop: Loop) -> bool:
    """Whether a number says how many steps run."""
    return loop.count is None and isinstance(loop.length, int) and loop.length > 0


def is_short(loop: Loop) -> bool:
    """Whether few ops are written out."""
    steps = loop.length
    return (
        of_known_steps(loop)
        and isinstance(steps, int)
        and steps <= UNROLLED_STEPS
        and steps * len(loop.body.nodes) <= UNROLLED_NODES
    )


def without_short_loops(loop: Loop) -> Loop:
    """The loop with those of its body written out."""
    body = _straight(loop.body)
    if body is loop.body:
        return loop
    return Loop(scan_node(
        body, loop.consts, loop.init, loop.xs, length=loop.length, reverse=loop.reverse, count=loop.count,
        until=loop.until,
    ))  # fmt: skip


def _straight(body: Graph) -> Graph:
    def one(node: Node) -> Sequence[Value] | None:
        loop = Loop.of(node)
        if loop is None:
            return None
        loop = without_short_loops(loop)
        if not is_short(loop):
            return None
        with at(node.loc):
            return written_out(loop)

    return transform(body, one)


def written_out(loop: Loop) -> list[Value]:
    """The results of a loop of known steps, one step after another."""
    steps = loop.length
    assert isinstance(steps, int)
    carries, rows = list(loop.init), list[list[Value]]()
    for step in range(steps):
        env = {loop.step: constant(step, loop.step.dtype)}
        env |= zip(loop.const_params, loop.consts, strict=True)
        env |= zip(loop.carry_params, carries, strict=True)
        for p, x, reverse in zip(loop.x_params, loop.xs, loop.x_reverse, strict=True):
            row = steps - 1 - step if reverse else step
            env[p] = squeeze(slice_axis(x, 0, row, row + 1), 0)
        made = clone(loop.body.outputs, env)
        carries = made[: len(carries)]
        rows.append(made[len(carries) :])
    stacked = zip(zip(*rows, strict=True), loop.y_reverse, strict=True)
    return [*carries, *(stack(of_steps[::-1] if reverse else of_steps, 0) for of_steps, reverse in stacked)]

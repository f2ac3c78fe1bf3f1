"""Outputs of a stencil that nothing reads are not computed.

    stencil(x, w)[:, :, 32:]   ->   stencil(x, w[:, 32:])

The gradient of a convolution over joined channels, `conv(concat([x, h]), w)`, gives the cotangents of all of them, of
which a loop reads those of h alone. Each output is a sum of its own, so that those that stay keep their bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from lstm_ir.ir.graph import Graph, Node, Value, substitute
from lstm_ir.ir.location import at
from lstm_ir.ops.primitive.shape import reshape
from lstm_ir.ops.primitive.stencil import Taps, stencil
from lstm_ir.ops.primitive.window import slice as slice_op
from lstm_ir.ops.primitive.window import slice_axis
from lstm_ir.passes.base import Notes

_OUTPUTS = 2  # the axis of a stencil's result


def without_unread_outputs(graph: Graph, name: str, notes: Notes) -> Graph:
    """Every stencil of which only slices of the outputs are read, with no more than those."""
    kept = set(graph.outputs)
    new: dict[Value, Value] = {}
    for n in graph.nodes:
        if n.op.name != "stencil":
            continue
        with at(n.loc.through(name)):
            found = _narrowed(graph, n, kept)
        if found:
            notes.fire("outputs of a stencil that nothing reads", n.loc)
            new |= found
    return substitute(graph, new)


def _narrowed(graph: Graph, n: Node, kept: set[Value]) -> dict[Value, Value]:
    """Slices of the result -> those of a smaller one; nothing where all of it is read."""
    whole, axis = n.values[0], _OUTPUTS
    readers = graph.users.get(whole, ())
    if len(readers) == 1 and readers[0].op.name == "reshape" and whole not in kept:
        joined = readers[0].values[0]
        batch, groups, *rest = whole.shape
        if groups == 1 and joined.shape == (batch, *rest):
            whole, axis, readers = joined, _OUTPUTS - 1, graph.users.get(joined, ())
    if whole in kept or not readers or any(r.op.name != "slice" for r in readers):
        return {}
    read = [(r.attrs["start_indices"][axis], r.attrs["limit_indices"][axis]) for r in readers]
    if not all(isinstance(d, int) for pair in read for d in pair):
        return {}
    low, high = min(a for a, _ in read), max(b for _, b in read)
    if high - low in (0, whole.shape[axis]):
        return {}
    lhs, rhs = n.inputs
    part = stencil(lhs, slice_axis(rhs, 1, low, high), Taps.of(n.attrs), n.attrs["height"], n.attrs["width"])
    if whole is not n.values[0]:
        part = reshape(part, whole.type.resized(axis, high - low).shape)
    return {r.values[0]: _moved(r, part, axis, low) for r in readers}


def _moved(r: Node, part: Value, axis: int, low: int) -> Value:
    """A slice of what is left."""

    def earlier(ends: Sequence[int]) -> list[int]:
        return [d - low if i == axis else d for i, d in enumerate(ends)]

    return slice_op(part, earlier(r.attrs["start_indices"]), earlier(r.attrs["limit_indices"]), r.attrs["strides"])

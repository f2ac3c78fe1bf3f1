"""Gradients of `gather` and `scatter_add`: each is the other."""

from __future__ import annotations

from lstm_ir import ops
from lstm_ir.ir.graph import Node
from lstm_ir.ops.primitive.elementwise_grad import Cts, only


def gather(node: Node, cts: Cts) -> Cts:
    """Added up at the rows that were picked."""
    x, indices = node.inputs
    return ops.scatter_add(ops.zeros_like(x), indices, only(cts), node.attrs["axis"]), None


def scatter_add(node: Node, cts: Cts) -> Cts:
    """All of it to the operand; the picked rows to the updates."""
    ct = only(cts)
    return ct, None, ops.take(ct, node.inputs[1], node.attrs["axis"])

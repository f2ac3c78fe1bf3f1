"""Gradients of the ops that rearrange: each is another one, or a sum."""

from __future__ import annotations

from lstm_ir import ops
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ops.primitive.elementwise_grad import Cts, only
from lstm_ir.ops.primitive.window import slice_axis


def broadcast_in_dim(node: Node, cts: Cts) -> tuple[Value | None]:
    """Summed over every axis along which the operand was repeated."""
    (x,), shape, to = node.inputs, node.attrs["shape"], node.attrs["broadcast_dimensions"]
    kept = {d for axis, d in enumerate(to) if x.shape[axis] == shape[d]}
    summed = ops.sum(only(cts), tuple(d for d in range(len(shape)) if d not in kept))
    return (ops.reshape(summed, x.shape),)


def reshape(node: Node, cts: Cts) -> Cts:
    """Reshaped back."""
    return (ops.reshape(only(cts), node.inputs[0].shape),)


def transpose(node: Node, cts: Cts) -> Cts:
    """The inverse permutation."""
    order = node.attrs["permutation"]
    return (ops.transpose(only(cts), tuple(order.index(i) for i in range(len(order)))),)


def reverse(node: Node, cts: Cts) -> Cts:
    """Reversed back."""
    return (ops.reverse(only(cts), node.attrs["dimensions"]),)


def concatenate(node: Node, cts: Cts) -> tuple[tuple[Value, ...]]:
    """Each operand's own part."""
    ct, axis = only(cts), node.attrs["dimension"]
    parts: list[Value] = []
    at: Dim = 0
    for v in node.inputs:
        end = dims.add(at, v.shape[axis])
        parts.append(slice_axis(ct, axis, at, end))
        at = end
    return (tuple(parts),)

"""Gradients of the reductions."""

from __future__ import annotations

from lstm_ir import ops
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.pullback import Cts, only
from lstm_ir.ir.types import DType


def spread(reduced: Value, x: Value, dimensions: tuple[int, ...]) -> Value:
    """What a reduction of x gave, repeated along the axes that it removed."""
    kept = tuple(i for i in range(x.rank) if i not in dimensions)
    return ops.broadcast_in_dim(reduced, x.shape, kept) if dimensions else reduced


def _wide(dtype: DType) -> DType:
    """Where to count: half types stop at few thousands."""
    return DType.f32 if dtype.bits == 16 else dtype


def reduce_sum(node: Node, cts: Cts) -> Cts:
    """To every element alike."""
    return (spread(only(cts), node.inputs[0], node.attrs["dimensions"]),)


def extreme(node: Node, cts: Cts) -> Cts:
    """To the elements equal to the maximum (minimum), divided by how many there are."""
    ct, (x,), over = only(cts), node.inputs, node.attrs["dimensions"]
    chosen = ops.equal(x, spread(node.values[0], x, over))
    wide = _wide(x.dtype)
    shares = ops.maximum(ops.sum(ops.convert(chosen, wide), over), 1.0)  # none is chosen of NaN
    share = ops.convert(ops.convert(ct, wide) / shares, x.dtype)
    return (ops.select(chosen, spread(share, x, over), 0.0),)


def reduce_mean(node: Node, cts: Cts) -> Cts:
    """To every element alike, divided by how many there are."""
    from lstm_ir.ops.primitive.reduce import count_of  # which imports this file

    (x,), over = node.inputs, node.attrs["dimensions"]
    wide = _wide(x.dtype)
    count = ops.maximum(count_of(x, over, wide), 1.0)  # 0: there is no element to give it to
    share = ops.convert(only(cts), wide) / count
    return (spread(ops.convert(share, x.dtype), x, over),)


def cumsum(node: Node, cts: Cts) -> Cts:
    """The running sum from the other end."""
    a = node.attrs
    back = ops.cumsum(only(cts), a["axis"], not a["reverse"], a["exclusive"])
    return (back,)


def argmax(node: Node, cts: Cts) -> Cts:
    """None."""
    return (None,)

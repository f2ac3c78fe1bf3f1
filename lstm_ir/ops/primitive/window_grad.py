"""Gradients of slice, pad and the dynamic windows."""

from __future__ import annotations

from lstm_ir import ops
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.pullback import Cts, only


def slice_(node: Node, cts: Cts) -> Cts:
    """The cotangent at its place in zeros."""
    ct, (x,), attrs = only(cts), node.inputs, node.attrs
    starts, limits, strides = attrs["start_indices"], attrs["limit_indices"], attrs["strides"]
    cut = False
    for axis, k in enumerate(strides):
        if k > 1:
            ct, cut = _spread(ct, axis, k), True
    high = [dims.add(n, dims.mul(hi, -1)) for n, hi in zip(x.shape, limits, strict=True)]
    wide = ops.pad(ct, starts, high)
    return (ops.slice(wide, (0,) * x.rank, x.shape) if cut else wide,)


def _spread(ct: Value, axis: int, k: int) -> Value:
    """k - 1 zeros after every element of `axis`. Unlike interior padding, right for size 0 too."""
    apart = ops.expand_dims(ct, axis + 1)
    zeros = [0] * apart.rank
    after = list(zeros)
    after[axis + 1] = k - 1
    shape = (*ct.shape[:axis], dims.mul(ct.shape[axis], k), *ct.shape[axis + 1 :])
    return ops.reshape(ops.pad(apart, zeros, after), shape)


def pad(node: Node, cts: Cts) -> Cts:
    """The operand's elements taken out again, and the sum of what was put around them."""
    ct, x, attrs = only(cts), node.inputs[0], node.attrs
    lows, highs = attrs["edge_padding_low"], attrs["edge_padding_high"]
    gaps = attrs["interior_padding"]
    around = ops.pad(ops.zeros_like(x), lows, highs, gaps, ops.constant(1, x.dtype))
    back = ops.pad(ct, _cut(lows), _cut(highs))
    starts = [0 if isinstance(lo, int) and lo < 0 else lo for lo in lows]
    ends = [
        dims.add(lo, dims.add(n, dims.mul(dims.add(n, -1), k)) if n != 0 else 0)
        for lo, n, k in zip(starts, x.shape, gaps, strict=True)
    ]
    return ops.slice(back, starts, ends, [k + 1 for k in gaps]), ops.sum(ct * around)


def _cut(edges: tuple[dims.Dim, ...]) -> list[dims.Dim]:
    """What negative edges cut off."""
    return [-e if isinstance(e, int) and e < 0 else 0 for e in edges]


def dynamic_slice(node: Node, cts: Cts) -> tuple[Value, tuple[None, ...]]:
    """The cotangent at its place in zeros."""
    x, *starts = node.inputs
    return ops.dynamic_update_slice(ops.zeros_like(x), only(cts), starts), (None,) * len(starts)


def dynamic_update_slice(node: Node, cts: Cts) -> tuple[Value, Value, tuple[None, ...]]:
    """Zero where it was overwritten; the window for the update."""
    ct, (_, update, *starts) = only(cts), node.inputs
    kept = ops.dynamic_update_slice(ct, ops.zeros_like(update), starts)
    return kept, ops.dynamic_slice(ct, starts, update.shape), (None,) * len(starts)

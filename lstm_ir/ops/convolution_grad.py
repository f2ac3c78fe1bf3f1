"""Gradient of `convolution_1d`: for x a convolution with w turned round, for w one dot per tap."""

from __future__ import annotations

from lstm_ir import dims, ops
from lstm_ir.graph import Node, Value
from lstm_ir.ops.elementwise_grad import Cts, only
from lstm_ir.ops.window import slice_axis


def convolution_1d(node: Node, cts: Cts) -> Cts:
    """Gradients of x [N, C, L] and w [O, C/G, K]."""
    ct = only(cts)
    return _lhs(node, ct), _rhs(node, ct)


def _lhs(node: Node, ct: Value) -> Value:
    """ct spread by the stride, with w's taps reversed and its channels exchanged."""
    (x, w), a = node.inputs, node.attrs
    groups, stride = a["groups"], a["stride"]
    outputs, each, taps = w.shape
    low = (taps - 1) * a["dilation"] - a["padding_low"]
    reach = dims.mul(dims.add(ct.shape[2], -1), stride)
    high = dims.add(dims.add(x.shape[2], a["padding_low"] - 1), dims.mul(reach, -1))
    wide = ops.pad(ct, (0, 0, low), (0, 0, high), (0, 0, stride - 1))
    if groups > 1:
        split = ops.reshape(w, (groups, outputs // groups, each, taps))
        turned = ops.reshape(
            ops.transpose(split, (0, 2, 1, 3)), (x.shape[1], outputs // groups, taps)
        )
    else:
        turned = ops.transpose(w, (1, 0, 2))
    return ops.conv1d(wide, ops.reverse(turned, 2), dilation=a["dilation"], groups=groups)


def _rhs(node: Node, ct: Value) -> Value:
    """Per tap k, the cotangent times the elements of x that met tap k."""
    (x, w), a = node.inputs, node.attrs
    groups, stride = a["groups"], a["stride"]
    outputs, each, taps = w.shape
    batch, _, steps = ct.shape
    padded = ops.pad(x, (0, 0, a["padding_low"]), (0, 0, a["padding_high"]))
    reach = dims.add(dims.mul(dims.add(steps, -1), stride), 1)
    per_group = dims.floordiv(outputs, groups)
    grouped = ops.reshape(ct, (batch, groups, per_group, steps))
    rows: list[Value] = []
    for k in range(taps):
        start = k * a["dilation"]
        met = slice_axis(padded, 2, start, dims.add(reach, start), stride)
        met = ops.reshape(met, (batch, groups, each, steps))
        row = ops.dot_general(grouped, met, ((0, 3), (0, 3)), ((1,), (1,)))
        rows.append(ops.reshape(row, (outputs, each)))
    return ops.stack(rows, axis=2)

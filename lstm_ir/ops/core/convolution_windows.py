"""What the taps of a convolution see, side by side, and the way back: data movement and sums alone.

    windows(x)[.., t, k C + c] = x[.., t stride + k dilation, c]        folded is its transpose

Both have one slice or one padding per tap. From more than DIRECT taps on, groups of neighbouring taps
are taken first, and then groups of those.
"""

from __future__ import annotations

import math
from functools import reduce

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ops.primitive.elementwise import add
from lstm_ir.ops.primitive.shape import concat, reshape
from lstm_ir.ops.primitive.window import pad, slice_axis

DIRECT = 16


def windows(x: Value, taps: int, stride: int, dilation: int, steps: Dim) -> Value:
    """x [.., L, C] -> [.., steps, taps C]; L has room for that."""
    axis, channels = x.rank - 2, x.shape[-1]
    if taps > DIRECT:
        near, far = _split(taps)
        x = padded(x, 0, (near * far - taps) * dilation)
        seen = windows(x, near, 1, dilation, dims.add(x.shape[axis], (1 - near) * dilation))
        out = windows(seen, far, stride, near * dilation, steps)
        return slice_axis(out, axis + 1, 0, dims.mul(channels, taps))
    reach = dims.add(dims.mul(dims.add(steps, -1), stride), 1)
    starts = [k * dilation for k in range(taps)]
    parts = [slice_axis(x, axis, at, dims.add(reach, at), stride) for at in starts]
    return concat(parts, axis + 1)


def folded(rows: Value, taps: int, stride: int, dilation: int, low: int, length: Dim) -> Value:
    """rows [.., T, taps C] -> [.., length, C]: each added where its tap saw it, from `low` on."""
    if stride > 1:
        rows, blocks = _blocks(rows, taps, stride, dilation)
        out = _added(rows, blocks, 1)
        channels = dims.floordiv(out.shape[-1], stride)
        out = reshape(out, (*out.shape[:-2], dims.mul(out.shape[-2], stride), channels))
    else:
        out = _added(rows, taps, dilation)
    axis, end = out.rank - 2, dims.add(length, low)
    short = dims.add(end, dims.mul(out.shape[axis], -1))
    if stride > 1:  # what no step reached
        out = padded(out, 0, max(short, 0) if isinstance(short, int) else stride - 1)
    return slice_axis(out, axis, low, end)


def padded(x: Value, low: int, high: int) -> Value:
    """x [.., L, C] with zeros before and after along L."""
    before = [0] * x.rank
    after = list(before)
    before[-2], after[-2] = low, high
    return pad(x, before, after)


def _blocks(rows: Value, taps: int, stride: int, dilation: int) -> tuple[Value, int]:
    """Rows [.., T, blocks stride C]: with rows of zeros, as of that many taps side by side.

    Block j of step t lies at stride (t + j): what is added has no gaps.
    """
    channels = dims.floordiv(rows.shape[-1], taps)
    width = (taps - 1) * dilation + 1
    blocks = -(-width // stride)
    split = reshape(rows, (*rows.shape[:-1], taps, channels))
    zero = [0] * split.rank
    after, between = list(zero), list(zero)
    after[-2], between[-2] = blocks * stride - width, dilation - 1
    wide = pad(split, zero, after, between)
    return reshape(wide, (*rows.shape[:-1], dims.mul(channels, blocks * stride))), blocks


def _added(rows: Value, taps: int, dilation: int) -> Value:
    """rows [.., T, taps C] -> [.., T + (taps - 1) dilation, C]."""
    axis = rows.rank - 2
    channels = dims.floordiv(rows.shape[-1], taps)
    last = (taps - 1) * dilation
    if taps > DIRECT:
        near, far = _split(taps)
        none = [0] * rows.rank
        after = [*none[1:], dims.mul(channels, near * far - taps)]
        part = _added(pad(rows, none, after), far, near * dilation)
        return slice_axis(_added(part, near, dilation), axis, 0, dims.add(rows.shape[axis], last))
    parts = [slice_axis(rows, axis + 1, dims.mul(channels, k), dims.mul(channels, k + 1)) for k in range(taps)]
    return reduce(add, [padded(p, k * dilation, last - k * dilation) for k, p in enumerate(parts)])


def _split(taps: int) -> tuple[int, int]:
    """Taps of a group, and groups, about as many."""
    near = math.isqrt(taps - 1) + 1
    return near, -(-taps // near)

"""`convolution_1d` and its gradients as one product each, of what all taps see with a matrix.

    y = windows(x) . matrix(w)        d_x = folded(d_y . matrix(w)^T)        d_w = windows(x)^T . d_y

Channels lie last: what a tap sees is runs of memory, and the product one of many rows with a matrix.
Groups are a batch axis. Where a group has one channel, its product is a sum over taps. Two-byte floats
are summed in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.pullback import Cts, only
from lstm_ir.ir.types import DType
from lstm_ir.ops.core.convolution_windows import folded, padded, windows
from lstm_ir.ops.primitive.elementwise import convert
from lstm_ir.ops.primitive.linear import dot, dot_general
from lstm_ir.ops.primitive.reduce import sum
from lstm_ir.ops.primitive.shape import reshape, transpose


def expand(lhs: Value, rhs: Value, **attrs: Any) -> Value:
    """y [N,O,T]."""
    return convert(_Convolution(_wide(lhs), _wide(rhs), attrs).result(), lhs.dtype)


def vjp(node: Node, cts: Cts) -> Cts:
    """Gradients of x [N,C,L] and w [O,C/G,K]."""
    x, w = node.inputs
    c, ct = _Convolution(_wide(x), _wide(w), node.attrs), _wide(only(cts))
    return convert(c.d_lhs(ct), x.dtype), convert(c.d_rhs(ct), w.dtype)


def _wide(v: Value) -> Value:
    return convert(v, DType.f32) if v.dtype.is_float and v.dtype.bits == 16 else v


def _flat(rows: Value) -> Value:
    """[N,T,C] as [N T,C]: kernels take rows side by side."""
    batch, steps, channels = rows.shape
    return reshape(rows, (dims.mul(batch, steps), channels))


class _Convolution:
    """x [N,C,L] with w [O,E,K] in G groups, C = E G, O = M G; rows are [N,T,C] or [G,N,T,E]."""

    def __init__(self, x: Value, w: Value, attrs: Mapping[str, Any]) -> None:
        self.x, self.w, self.groups = x, w, int(attrs["groups"])
        self.outputs, self.each, taps = w.shape
        assert isinstance(taps, int)
        self.taps, self.stride, self.dilation = taps, attrs["stride"], attrs["dilation"]
        self.low, self.high = attrs["padding_low"], attrs["padding_high"]
        self.more = dims.floordiv(self.outputs, self.groups)  # M
        self.single = self.groups > 1 and self.each == 1
        self.split = self.groups > 1 and not self.single

    def result(self) -> Value:
        """y [N,O,T]."""
        seen, matrix = self._seen(), self._matrix()
        if self.single:
            rows = sum(seen * matrix, 2)
            return self._columns(reshape(rows, (*rows.shape[:2], self.outputs)))
        if self.split:
            return self._columns(dot_general(seen, matrix, ((3,), (1,)), ((0,), (0,))))
        flat = dot(_flat(seen), matrix)
        return self._columns(reshape(flat, (*seen.shape[:2], self.outputs)))

    def d_lhs(self, ct: Value) -> Value:
        """[N,C,L]."""
        rows, matrix = self._rows(ct, self.more), self._matrix()
        if self.single:
            met = sum(self._apart(rows) * matrix, -1)
            met = reshape(met, (*rows.shape[:2], self.taps * self.groups))
        elif self.split:
            met = dot_general(rows, matrix, ((3,), (2,)), ((0,), (0,)))
        else:
            flat = dot_general(_flat(rows), matrix, ((1,), (1,)))
            met = reshape(flat, (*rows.shape[:2], flat.shape[1]))
        length = self.x.shape[2]
        return self._columns(folded(met, self.taps, self.stride, self.dilation, self.low, length))

    def d_rhs(self, ct: Value) -> Value:
        """[O,E,K]."""
        rows, seen = self._rows(ct, self.more), self._seen()
        if self.single:
            met = sum(seen * self._apart(rows), (0, 1))
            return reshape(transpose(met, (1, 2, 0)), self.w.shape)
        if self.split:
            met = dot_general(seen, rows, ((1, 2), (1, 2)), ((0,), (0,)))
        else:
            met = dot_general(_flat(seen), _flat(rows), ((0,), (0,)))
        apart = reshape(met, (self.groups, self.taps, self.each, self.more))
        return reshape(transpose(apart, (0, 3, 2, 1)), self.w.shape)

    def _seen(self) -> Value:
        """[N,T,K C] or [G,N,T,K E]; where a group has one channel, [N,T,K,G,1]."""
        x = padded(self._rows(self.x, self.each), self.low, self.high)
        window = (self.taps - 1) * self.dilation + 1
        room = dims.add(x.shape[-2], -window)
        steps = dims.add(dims.floordiv(room, self.stride), 1)
        seen = windows(x, self.taps, self.stride, self.dilation, steps)
        if self.single:
            return reshape(seen, (*seen.shape[:2], self.taps, self.groups, 1))
        return seen

    def _matrix(self) -> Value:
        """[K C,O] or [G,K E,M]; where a group has one channel, [K,G,M]."""
        rows = dims.mul(self.each, self.taps)
        if self.single:
            return transpose(reshape(self.w, (self.groups, self.more, self.taps)), (2, 0, 1))
        if self.split:
            apart = reshape(self.w, (self.groups, self.more, self.each, self.taps))
            turned = transpose(apart, (0, 3, 2, 1))
            return reshape(turned, (self.groups, rows, self.more))
        return reshape(transpose(self.w, (2, 1, 0)), (rows, self.outputs))

    def _apart(self, rows: Value) -> Value:
        """[N,T,O] as [N,T,1,G,M]."""
        return reshape(rows, (*rows.shape[:2], 1, self.groups, self.more))

    def _rows(self, v: Value, channels: Dim) -> Value:
        """[N,C,L] as rows."""
        if not self.split:
            return transpose(v, (0, 2, 1))
        apart = reshape(v, (v.shape[0], self.groups, channels, v.shape[2]))
        return transpose(apart, (1, 0, 3, 2))

    def _columns(self, rows: Value) -> Value:
        """Rows as [N,C,L]."""
        if not self.split:
            return transpose(rows, (0, 2, 1))
        v = transpose(rows, (1, 0, 3, 2))
        batch, groups, each, length = v.shape
        return reshape(v, (batch, dims.mul(groups, each), length))

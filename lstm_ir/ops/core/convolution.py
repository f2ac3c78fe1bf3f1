"""Convolution over one axis, as networks have it (the kernel is not flipped).

    y[n, o, t] = sum over c, k of xp[n, g C/G + c, t stride + k dilation] w[o, c, k]

xp is x with zeros around it, g = o // (O / G) the group of o, G = groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value, make
from lstm_ir.ir.opdef import Attr, Level, RuleError, define, need, need_at_least, need_equal
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.core import convolution_products as g
from lstm_ir.ops.primitive.broadcast import as_values
from lstm_ir.ops.primitive.reduce import wide
from lstm_ir.ops.primitive.window import pad

Array = np.ndarray[Any, Any]


def _types(
    lhs: TensorType, rhs: TensorType, *, stride: int, padding_low: int, padding_high: int, dilation: int, groups: int
) -> TensorType:
    need(lhs.dtype is rhs.dtype, f"lhs is {lhs.dtype}, rhs {rhs.dtype}; convert one of them")
    need(lhs.dtype is not DType.i1, "takes numbers, got i1")
    need(lhs.rank == 3 and rhs.rank == 3, "takes lhs [N, C, L] and rhs [O, C/groups, K]")
    need(min(stride, dilation, groups) >= 1, "stride, dilation and groups are 1 or more")
    (batch, channels, length), (outputs, each, taps) = lhs.shape, rhs.shape
    if not isinstance(taps, int) or taps < 1:
        raise RuleError(f"the kernel size is {taps}, not an int of 1 or more")
    need_equal(channels, dims.mul(each, groups), f"{channels} channels, but {groups} groups of {each}")
    fits = groups == 1 or (isinstance(outputs, int) and outputs % groups == 0)
    need(fits, f"{outputs} output channels do not divide into {groups} groups")
    window = (taps - 1) * dilation + 1
    paddings = f"paddings {padding_low} and {padding_high}"
    need(
        0 <= min(padding_low, padding_high) and max(padding_low, padding_high) < window,
        f"{paddings} are not in 0..{window - 1}; pad explicitly",
    )
    room = dims.add(length, padding_low + padding_high - window)
    need_at_least(room, 0, f"a window of {window} does not fit {length} with {paddings}")
    return TensorType((batch, outputs, dims.add(dims.floordiv(room, stride), 1)), lhs.dtype)


def _numpy(
    x: Array, w: Array, *, stride: int, padding_low: int, padding_high: int, dilation: int, groups: int
) -> Array:
    """One product per tap; two-byte floats are summed in float32."""
    xp = np.pad(wide(x), ((0, 0), (0, 0), (padding_low, padding_high)))
    batch, channels, length = xp.shape
    outputs, each, taps = w.shape
    steps = (length - (taps - 1) * dilation - 1) // stride + 1
    kernel = wide(w).reshape(groups, outputs // groups, each, taps)
    out = np.zeros((batch, groups, outputs // groups, steps), xp.dtype)
    for k in range(taps):
        part = xp[:, :, k * dilation :][:, :, : (steps - 1) * stride + 1 : stride]
        part = part.reshape(batch, groups, channels // groups, steps)
        out += np.einsum("ngcl,goc->ngol", part, kernel[..., k])
    return out.reshape(batch, outputs, steps).astype(x.dtype)


CONVOLUTION_1D = define(
    "convolution_1d", "lhs rhs",
    attrs={
        "stride": Attr("int", 1), "padding_low": Attr("int", 0), "padding_high": Attr("int", 0),
        "dilation": Attr("int", 1), "groups": Attr("int", 1),
    },
    types=_types, numpy=_numpy, vjp=g.vjp, expand=g.expand, level=Level.core,
)  # fmt: skip


def conv1d(
    x: Any, w: Any, stride: int = 1, padding: int | tuple[int, int] = 0, dilation: int = 1, groups: int = 1
) -> Value:
    """x [N, C, L] with w [O, C/groups, K] -> [N, O, (L + padding - window) // stride + 1]."""
    a, b = as_values("convolution_1d", x, w)
    low, high = (padding, padding) if isinstance(padding, int) else padding
    most = _window(b.shape[2], dilation) - 1 if b.rank == 3 else 0
    if a.rank == 3 and (min(low, high) < 0 or max(low, high) > most):
        inside = [min(max(p, 0), most) for p in (low, high)]
        a = pad(a, (0, 0, low - inside[0]), (0, 0, high - inside[1]))
        low, high = inside
    node = make(
        CONVOLUTION_1D, a, b, stride=stride, padding_low=low, padding_high=high,
        dilation=dilation, groups=groups,
    )  # fmt: skip
    return node.values[0]


def _window(taps: Dim, dilation: int) -> int:
    return (taps - 1) * dilation + 1 if isinstance(taps, int) else 1

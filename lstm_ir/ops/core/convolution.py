"""Convolution over one or two axes, as networks have it (the kernel is not flipped).

    y[n, o, t] = sum over c, k of xp[n, g C/G + c, t stride + k dilation] w[o, c, k]

t, k, strides and dilations have one number per axis; xp is x with zeros around it, or less of it where
a padding is negative; g = o // (O / G) is the group of o, G = groups. The gradient of x is the
transposed convolution of the same attributes (`convolution_transpose.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lstm_ir.ir import dims, options
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.location import here
from lstm_ir.ir.opdef import OPS, Attr, Level, Trait, define, need, need_equal
from lstm_ir.ir.pullback import Cts, only
from lstm_ir.ir.types import DType, Shape, TensorType
from lstm_ir.ops.core.same_padding import padded, same_edges
from lstm_ir.ops.core.windows import (
    ATTRS,
    DILATIONS,
    Axes,
    Padding,
    Pair,
    axes_of,
    each,
    need_axes,
    need_steps,
    paddings,
    plane_sizes,
    steps_of,
    taps_of,
)
from lstm_ir.ops.primitive.broadcast import as_values
from lstm_ir.ops.primitive.elementwise import convert
from lstm_ir.ops.primitive.numpy_math import wide
from lstm_ir.ops.primitive.precision import in_compute_dtype
from lstm_ir.ops.primitive.shape import reshape
from lstm_ir.ops.primitive.stencil import stencil, stencil_grad

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]


def need_operands(x: TensorType, w: TensorType, layout: str, groups: int, attrs: Mapping[str, Any]) -> Axes:
    """Inside a type rule: what both kinds of convolution ask of their operands."""
    need(x.dtype is w.dtype, f"x is {x.dtype}, w {w.dtype}; convert one of them")
    need(x.dtype is not DType.i1, "takes numbers, got i1")
    rank = len(attrs["strides"])
    need(x.rank == w.rank == rank + 2, f"takes x and w of rank {rank + 2}: {layout}")
    need(groups >= 1, f"groups are {groups}, not 1 or more")
    outputs = w.shape[0]
    fits = groups == 1 or (isinstance(outputs, int) and outputs % groups == 0)
    need(fits, f"{outputs} kernels do not divide into {groups} groups")
    return need_axes("the kernel size", w.shape[2:], attrs)


def _types(x: TensorType, w: TensorType, *, groups: int, **attrs: Ints) -> TensorType:
    axes = need_operands(x, w, "[N, C, ..] and [O, C/groups, ..]", groups, attrs)
    (batch, channels, *sizes), (outputs, per_group) = x.shape, w.shape[:2]
    said = f"x has {channels} channels, w takes {dims.mul(per_group, groups)}"
    of = "" if groups == 1 else f", {groups} groups of {per_group}"
    need_equal(channels, dims.mul(per_group, groups), f"{said}{of}{channels_last(x, w, groups)}")
    return TensorType((batch, outputs, *need_steps(axes, tuple(sizes))), x.dtype)


def channels_last(x: TensorType, w: TensorType, groups: int) -> str:
    """What to write where the last axis of x has the channels that the kernel takes."""
    if x.shape[-1] != dims.mul(w.shape[1], groups):
        return ""
    order = (0, x.rank - 1, *range(1, x.rank - 1))
    return f": x is [N, C, ..]. Channels last? Give li.transpose(x, {order})"


def cut(x: Array, lows: Ints, highs: Ints) -> Array:
    """[N, C, ..] with zeros around it, or less of it."""
    edges = list(zip(lows, highs, strict=True))
    x = np.pad(x, ((0, 0), (0, 0), *((max(a, 0), max(b, 0)) for a, b in edges)))
    kept: Any = [np.s_[max(-a, 0) : n - max(-b, 0)] for (a, b), n in zip(edges, x.shape[2:], strict=True)]
    return np.asarray(x[(..., *kept)])


def seen(axes: Axes, tap: Ints, steps: Ints) -> Any:
    """The index of what a tap sees, in an array with its padding."""
    starts = [k * a.dilation for a, k in zip(axes, tap, strict=True)]
    ends = [at + (n - 1) * a.stride + 1 for a, at, n in zip(axes, starts, steps, strict=True)]
    return (..., *(np.s_[at : end : a.stride] for a, at, end in zip(axes, starts, ends, strict=True)))


def _numpy(x: Array, w: Array, *, groups: int, **attrs: Ints) -> Array:
    """One product per tap; two-byte floats are summed in float32."""
    axes = axes_of(w.shape[2:], attrs)
    steps = tuple(int(n) for n in steps_of(axes, x.shape[2:]))  # type: ignore[arg-type]
    xp = cut(wide(x), attrs["padding_low"], attrs["padding_high"])
    apart = wide(w).reshape(groups, w.shape[0] // groups, *w.shape[1:])
    out = np.zeros((x.shape[0], *apart.shape[:2], *steps), xp.dtype)
    for tap in np.ndindex(w.shape[2:]):
        part = xp[seen(axes, tap, steps)].reshape(x.shape[0], groups, w.shape[1], *steps)
        out += np.einsum("ngc...,goc->ngo...", part, apart[(..., *tap)])
    return out.reshape(x.shape[0], w.shape[0], *steps).astype(x.dtype)


def grouped(x: Value, groups: int, sizes: Shape) -> Value:
    """[N, C, ..] as [N, G, C/G, *sizes]."""
    return reshape(x, (x.shape[0], groups, dims.floordiv(x.shape[1], groups), *sizes))


def _expand(x: Value, w: Value, *, groups: int, **attrs: Ints) -> Value:
    axes, sizes = axes_of(w.shape[2:], attrs), x.shape[2:]
    steps, taps = steps_of(axes, sizes), taps_of(axes)
    rows = grouped(in_compute_dtype(x), groups, plane_sizes(sizes))
    outputs, per_group = w.shape[:2]
    kernel = reshape(in_compute_dtype(w), (groups, dims.floordiv(outputs, groups), per_group, len(taps)))
    y = stencil(rows, kernel, taps, *plane_sizes(steps))
    return convert(reshape(y, (x.shape[0], outputs, *steps)), x.dtype)


def _vjp(node: Node, cts: Cts) -> Cts:
    """The transposed convolution of the cotangent; for each tap what it saw times the cotangent."""
    (x, w), ct = node.inputs, only(cts)
    back = make(OPS["convolution_transpose"], ct, w, sizes=x.shape[2:], **node.attrs).values[0]
    return back, kernel_gradient(x, ct, w, node.attrs)


def kernel_gradient(x: Value, y: Value, w: Value, attrs: Mapping[str, Any]) -> Value:
    """The gradient of w where x [N,C,..] is convolved with it, and y is the cotangent of the result."""
    taps, groups = taps_of(axes_of(w.shape[2:], attrs)), attrs["groups"]
    seen, rows = (grouped(in_compute_dtype(v), groups, plane_sizes(v.shape[2:])) for v in (x, y))
    return convert(reshape(stencil_grad(seen, rows, taps), w.shape), w.dtype)


CONVOLUTION = define(
    "convolution", "x w", attrs={**ATTRS, **DILATIONS, "groups": Attr("int", 1)},
    types=_types, numpy=_numpy, vjp=_vjp, expand=_expand, level=Level.core, traits=(Trait.batched,),
)  # fmt: skip


def conv1d(
    x: Any, w: Any, stride: int = 1, padding: Padding | str = 0, dilation: int = 1, groups: int = 1, *, bias: Any = None
) -> Value:
    """x [N, C, L] with w [O, C/groups, K] -> [N, O, (L + padding - window) // stride + 1].

    K and groups are numbers, the other sizes may have names. window = (K - 1) dilation + 1; padding in the formula is
    that of both ends: one number for each, or [(before, after)], negative to leave places out; or "valid" (none),
    "same" (ceil(L / stride) places) or "causal" (before alone). bias [O] is added to the result in its dtype. Floats
    and integers.
    """
    return _convolution(1, x, w, bias, stride, padding, dilation, groups)


def conv2d(
    x: Any, w: Any, stride: Pair = 1, padding: Padding | str = 0, dilation: Pair = 1, groups: int = 1, *,
    bias: Any = None,
) -> Value:  # fmt: skip
    """x [N, C, H, W] with w [O, C/groups, KH, KW] -> [N, O, H', W'], each as in conv1d; "causal" is for one axis."""
    return _convolution(2, x, w, bias, stride, padding, dilation, groups)


def _convolution(
    rank: int, x: Any, w: Any, bias: Any, stride: Pair, padding: Padding | str, dilation: Pair, groups: int
) -> Value:
    op = "convolution"
    a, b = as_values(op, x, w)
    strides, dilations = each(op, "stride", stride, rank), each(op, "dilation", dilation, rank)
    if isinstance(padding, str):
        words = ("valid", "same", "causal")[: 3 if rank == 1 else 2]
        a, padding = _by_word(a, b, options.choice(op, "padding", padding, words), strides, dilations)
    low, high = paddings(op, padding, rank)
    groups = options.integer(op, "groups", groups)
    node = make(
        CONVOLUTION, a, b, strides=strides, padding_low=low, padding_high=high, dilations=dilations, groups=groups
    )
    return biased(op, node.values[0], bias)


def _by_word(x: Value, w: Value, word: str, strides: Ints, dilations: Ints) -> tuple[Value, Padding]:
    """x with edges that only a call knows, and the padding that is left for the op: those that are numbers."""
    rank, sizes, taps = len(strides), x.shape[2:], [k for k in w.shape[2:] if isinstance(k, int)]
    if word == "valid" or not len(sizes) == len(taps) == rank or min(*strides, *dilations) < 1:
        return x, 0  # what does not fit the op refuses
    widths = [(k - 1) * d + 1 for k, d in zip(taps, dilations, strict=True)]
    if word == "causal":
        return x, [(n - 1, 0) for n in widths]
    return padded(x, [same_edges(n, k, by) for n, k, by in zip(sizes, widths, strides, strict=True)], 0)


def biased(op: str, y: Value, bias: Any) -> Value:
    """y [N, O, ..], rounded to its dtype, plus bias [O], if there is one."""
    if bias is None:
        return y
    _, b = as_values(op, y, bias)
    wanted = TensorType((y.shape[1],), y.dtype)
    if b.type != wanted:
        raise IRError(message(op, f"bias is {b.type}; expected one number for each kernel, {wanted}", loc=here()))
    return y + reshape(b, (*b.shape, *(1,) * (y.rank - 2)))

"""Transposed convolution over one or two axes: the gradient of a convolution by its operand.

    y[n, g O/G + o, p] = sum over c, t, k with t stride + k dilation - low = p of x[n, c, t] w[c, o, k]

where c is of group g. It is the transpose of `convolution` with the same attributes on an operand of
`sizes`, so the windows that fit there are as many as x has places. Its own gradient is that convolution.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir import dims, options
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.location import here
from lstm_ir.ir.opdef import Attr, Level, Trait, define, need, need_equal
from lstm_ir.ir.pullback import Cts, only
from lstm_ir.ir.types import Shape, TensorType
from lstm_ir.ops.core.convolution import CONVOLUTION, biased, cut, grouped, kernel_gradient, need_operands, seen
from lstm_ir.ops.core.windows import (
    ATTRS,
    DILATIONS,
    Padding,
    Pair,
    WindowAxis,
    axes_of,
    each,
    need_steps,
    paddings,
    plane_sizes,
    taps_of,
)
from lstm_ir.ops.primitive.broadcast import as_values
from lstm_ir.ops.primitive.elementwise import convert
from lstm_ir.ops.primitive.numpy_math import wide
from lstm_ir.ops.primitive.precision import in_compute_dtype
from lstm_ir.ops.primitive.shape import reshape
from lstm_ir.ops.primitive.stencil import by_lhs

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]


def _types(x: TensorType, w: TensorType, *, groups: int, sizes: Shape, **attrs: Ints) -> TensorType:
    axes = need_operands(x, w, "[N, C, ..] and [C, O/groups, ..]", groups, attrs)
    (batch, channels, *steps), (inputs, per_group) = x.shape, w.shape[:2]
    need_equal(channels, inputs, f"{channels} channels, but {inputs} kernels")
    need(len(sizes) == len(axes), f"{len(sizes)} sizes for {len(axes)} axes")
    for has, fit, size in zip(steps, need_steps(axes, sizes), sizes, strict=True):
        need_equal(has, fit, f"{has} places, but {fit} windows fit a result of {size}")
    return TensorType((batch, dims.mul(per_group, groups), *sizes), x.dtype)


def _numpy(x: Array, w: Array, *, groups: int, sizes: Ints, **attrs: Ints) -> Array:
    """Each tap's products added where it would read; two-byte floats are summed in float32."""
    axes = axes_of(w.shape[2:], attrs)
    steps, batch, outputs = x.shape[2:], x.shape[0], groups * w.shape[1]
    low, high = attrs["padding_low"], attrs["padding_high"]
    padded = [n + a + b for n, a, b in zip(sizes, low, high, strict=True)]
    apart = wide(w).reshape(groups, w.shape[0] // groups, *w.shape[1:])
    rows = wide(x).reshape(batch, groups, x.shape[1] // groups, *steps)
    out = np.zeros((batch, outputs, *padded), rows.dtype)
    for tap in np.ndindex(w.shape[2:]):
        part = np.einsum("ngc...,gco->ngo...", rows, apart[(..., *tap)])
        out[seen(axes, tap, steps)] += part.reshape(batch, outputs, *steps)
    return cut(out, tuple(-n for n in low), tuple(-n for n in high)).astype(x.dtype)


def _expand(x: Value, w: Value, *, groups: int, sizes: Shape, **attrs: Ints) -> Value:
    taps, (inputs, per_group) = taps_of(axes_of(w.shape[2:], attrs)), w.shape[:2]
    apart = reshape(in_compute_dtype(w), (groups, dims.floordiv(inputs, groups), per_group, len(taps)))
    rows = grouped(in_compute_dtype(x), groups, plane_sizes(x.shape[2:]))
    y = by_lhs(rows, apart, taps, *plane_sizes(sizes))
    return convert(reshape(y, (x.shape[0], dims.mul(per_group, groups), *sizes)), x.dtype)


def _vjp(node: Node, cts: Cts) -> Cts:
    """The convolution of the cotangent; for each tap what it would see times x."""
    (x, w), ct = node.inputs, only(cts)
    attrs = {k: v for k, v in node.attrs.items() if k != "sizes"}
    return make(CONVOLUTION, ct, w, **attrs).values[0], kernel_gradient(ct, x, w, attrs)


CONVOLUTION_TRANSPOSE = define(
    "convolution_transpose", "x w",
    attrs={"sizes": Attr("dims"), **ATTRS, **DILATIONS, "groups": Attr("int", 1)},
    types=_types, numpy=_numpy, vjp=_vjp, expand=_expand, level=Level.core, traits=(Trait.batched,),
)  # fmt: skip


def conv_transpose1d(
    x: Any, w: Any, stride: int = 1, padding: Padding = 0, output_padding: int = 0, *, groups: int = 1,
    dilation: int = 1, bias: Any = None,
) -> Value:  # fmt: skip
    """x [N, C, L] with w [C, O/groups, K] -> [N, O, (L - 1) stride - padding + window + output_padding]."""
    return _transposed(1, x, w, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    x: Any, w: Any, stride: Pair = 1, padding: Padding = 0, output_padding: Pair = 0, *, groups: int = 1,
    dilation: Pair = 1, bias: Any = None,
) -> Value:  # fmt: skip
    """x [N, C, H, W] with w [C, O/groups, KH, KW] -> [N, O, H', W'], each as in conv_transpose1d."""
    return _transposed(2, x, w, bias, stride, padding, output_padding, groups, dilation)


def _transposed(
    rank: int, x: Any, w: Any, bias: Any, stride: Pair, padding: Padding, more: Pair, groups: int, dilation: Pair
) -> Value:
    op = "convolution_transpose"
    a, b = as_values(op, x, w)
    strides, dilations = each(op, "stride", stride, rank), each(op, "dilation", dilation, rank)
    (low, ends), groups = paddings(op, padding, rank), options.integer(op, "groups", groups)
    high = tuple(end - n for end, n in zip(ends, each(op, "output_padding", more, rank), strict=True))
    taps, steps = b.shape[2:], a.shape[2:]
    sizes: Shape = ()
    if len(taps) == len(steps) == rank and all(isinstance(k, int) for k in taps):
        axes = axes_of(taps, {"strides": strides, "padding_low": low, "padding_high": high, "dilations": dilations})
        sizes = tuple(_size(t, n) for t, n in zip(axes, steps, strict=True))
        for t, n, size in zip(axes, steps, sizes, strict=True):
            if isinstance(size, int) and size < 0:
                problem = f"padding {t.low} and {t.high} leave nothing of {n} places and a window of {t.window}"
                raise IRError(message(op, problem, loc=here()))
    node = make(
        CONVOLUTION_TRANSPOSE, a, b, sizes=sizes, strides=strides, padding_low=low, padding_high=high,
        dilations=dilations, groups=groups,
    )  # fmt: skip
    return biased(op, node.values[0], bias)


def _size(axis: WindowAxis, steps: dims.Dim) -> dims.Dim:
    """The least that so many windows fit."""
    return dims.add(dims.mul(dims.add(steps, -1), axis.stride), axis.window - axis.low - axis.high)

"""Lowering of convolution_1d. Two-byte floats are summed in float32."""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir import dims
from lstm_ir.backends.emitter import Emitter, lower
from lstm_ir.backends.lower_linear import sum_type
from lstm_ir.backends.lower_shape import reshape
from lstm_ir.backends.regions import (
    empty,
    generic,
    picked,
    position,
    signed_back,
    signless,
)  # fmt: skip
from lstm_ir.graph import Node
from lstm_ir.types import TensorType

_LAYOUT = (
    "#stablehlo.conv<raw input_batch_dimension = 0, input_feature_dimension = 1, "
    "input_spatial_dimensions = [2], kernel_output_feature_dimension = 0, "
    "kernel_input_feature_dimension = 1, kernel_spatial_dimensions = [2], "
    "output_batch_dimension = 0, output_feature_dimension = 1, output_spatial_dimensions = [2]>"
)


@lower("convolution_1d")
def _convolution(e: Emitter, n: Node, x: ir.Value, w: ir.Value) -> ir.Value:
    t, to = n.inputs[0].type, n.types[0]
    kernel = n.inputs[1].type
    total = sum_type(to)
    x, w = e.convert(x, t, total.dtype), e.convert(w, kernel, total.dtype)
    t, kernel = t.with_dtype(total.dtype), kernel.with_dtype(total.dtype)
    # SPIR-V code of grouped convolutions leaves rows out
    spirv = e.target is not None and e.target.kind in ("vulkan", "metal")
    if t.is_static and kernel.is_static and not spirv:
        out = _static(e, n, x, w, total)
    else:
        out = _dynamic(e, n, x, t, w, kernel, total)
    return e.convert(out, total, to.dtype)


def _static(e: Emitter, n: Node, x: ir.Value, w: ir.Value, to: TensorType) -> ir.Value:
    a = n.attrs
    i64 = ir.IntegerType.get_signless(64)
    padding = ir.Attribute.parse(
        f"dense<[[{a['padding_low']}, {a['padding_high']}]]> : tensor<1x2xi64>"
    )
    return e.hlo(
        "convolution", [x, w], to,
        window_strides=ir.DenseI64ArrayAttr.get([a["stride"]]),
        padding=padding,
        rhs_dilation=ir.DenseI64ArrayAttr.get([a["dilation"]]),
        dimension_numbers=ir.Attribute.parse(_LAYOUT),
        feature_group_count=ir.IntegerAttr.get(i64, a["groups"]),
        batch_group_count=ir.IntegerAttr.get(i64, 1),
    )  # fmt: skip


def _dynamic(
    e: Emitter, n: Node, x: ir.Value, t: TensorType, w: ir.Value, kernel: TensorType,
    to: TensorType,
) -> ir.Value:  # fmt: skip
    """linalg.generic over (batch, group, output, step; channel, tap) of the padded input."""
    a, g = n.attrs, n.attrs["groups"]
    v, kind = signless(e, x, t)
    k, _ = signless(e, w, kernel)
    zero, result = signless(e, e.full(0, to), to)
    longer = kind.resized(2, dims.add(t.shape[2], a["padding_low"] + a["padding_high"]))
    if longer != kind:
        room = e.filled(0, longer)
        v = e.insert_slice(v, room, [0, 0, a["padding_low"]], kind.shape)
    (batch, _, _), (outputs, each, taps) = t.shape, kernel.shape
    assert isinstance(outputs, int) or g == 1
    share = outputs if g == 1 else outputs // g
    v = reshape(e, v, longer, (batch, g, each, longer.shape[2]))
    k = reshape(e, k, kernel.with_dtype(kind.dtype), (g, share, each, taps))
    split = result.with_shape((batch, g, share, to.shape[2]))
    floats = to.dtype.is_float
    mul, add = ("arith.mulf", "arith.addf") if floats else ("arith.muli", "arith.addi")

    def body(args: list[ir.Value]) -> ir.Value:
        p = e.make(mul, args[:2], [args[0].type]).result
        return e.make(add, [args[2], p], [args[2].type]).result

    seen = ["d0", "d1", "d4", f"d3 + d5 * {a['dilation']}"]
    if a["stride"] > 1:  # IREE reads wrong places of a named size through a map with a stride
        windows = kind.with_shape((batch, g, each, taps, to.shape[2]))
        v, seen = _windows(e, n, v, windows), ["d0", "d1", "d4", "d5", "d3"]
    maps = [seen, ["d1", "d2", "d4", "d5"], ["d0", "d1", "d2", "d3"]]
    start = reshape(e, zero, result, split.shape)
    out = generic(e, [v, k], start, maps, 6, body, summed=(4, 5))
    return signed_back(e, reshape(e, out, split, result.shape), to)


def _windows(e: Emitter, n: Node, v: ir.Value, to: TensorType) -> ir.Value:
    """[batch, group, channel, tap, step]: what each step of the kernel sees."""
    index = ir.IndexType.get()
    stride, dilation = e.size(n.attrs["stride"]), e.size(n.attrs["dilation"])

    def body(_: list[ir.Value]) -> ir.Value:
        *outer, tap, step = (position(e, i) for i in range(5))
        begin = e.make("arith.muli", [step, stride], [index]).result
        ahead = e.make("arith.muli", [tap, dilation], [index]).result
        at = e.make("arith.addi", [begin, ahead], [index]).result
        return picked(e, v, [*outer, at])

    return generic(e, [], empty(e, to), [[f"d{i}" for i in range(5)]], 5, body)

"""16-bit floats on SPIR-V: every change of width is a dispatch of its own, bfloat16 through integer bits.

IREE 3.13 gets these wrong or refuses them: a widening fused into a product or into a sum over leading axes
reads other elements, and vectors of bfloat16 have no loads ("failed to legalize vector.bitcast").
"""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter, tensor
from lstm_ir.ir.types import DType, TensorType


def widen(e: Emitter, v: ir.Value, t: TensorType) -> ir.Value:
    """f16 or bf16 as f32."""
    wide = t.with_dtype(DType.f32)
    if t.dtype is DType.f16:
        out = e.hlo("convert", [v], wide)
    else:
        bits = t.with_dtype(DType.i32)
        low = e.make("stablehlo.convert", [_view(e, v, t, _bits(t))], [tensor(bits)]).result
        high = e.hlo("shift_left", [low, e.full(16, bits)], bits)
        out = e.hlo("bitcast_convert", [high], wide)
    return e.opaque(out, wide)


def narrow(e: Emitter, v: ir.Value, t: TensorType) -> ir.Value:
    """f32 as bf16, to nearest and even; NaN stays one."""
    bits = t.with_dtype(DType.i32)
    high = e.hlo("shift_right_logical", [rounded(e, v, t), e.full(16, bits)], bits)
    small = e.make("stablehlo.convert", [high], [_bits(t)]).result
    return _view(e, small, t, tensor(t.with_dtype(DType.bf16)))


def rounded(e: Emitter, v: ir.Value, t: TensorType) -> ir.Value:
    """The bits of an f32, whose high half is those of the nearest bf16 (of two, the even one)."""
    bits, flags = t.with_dtype(DType.i32), t.with_dtype(DType.i1)
    x = e.hlo("bitcast_convert", [v], bits)
    last = e.hlo("shift_right_logical", [x, e.full(16, bits)], bits)
    odd = e.hlo("and", [last, e.full(1, bits)], bits)
    up = e.hlo("add", [e.hlo("add", [x, odd], bits), e.full(0x7FFF, bits)], bits)
    word = ir.Attribute.parse("#stablehlo<comparison_direction NE>")
    nan = e.hlo("compare", [v, v], flags, comparison_direction=word)
    return e.hlo("select", [nan, e.full(0x7FC00000, bits), up], bits)


def _bits(t: TensorType) -> ir.RankedTensorType:
    shape = ir.RankedTensorType(tensor(t)).shape
    return ir.RankedTensorType.get(shape, ir.IntegerType.get_signless(16))


def _view(e: Emitter, v: ir.Value, t: TensorType, to: ir.Type) -> ir.Value:
    """The same memory as other elements of 16 bits: no dispatch reads a bfloat16."""
    sizes = [e.size(d) for d in t.shape if not isinstance(d, int)]
    attrs = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(sizes), len(sizes)])}
    return e.make("flow.tensor.bitcast", [v, *sizes, *sizes], [to], attrs).result

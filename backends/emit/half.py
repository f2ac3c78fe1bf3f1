"""16-bit floats on SPIR-V: every change of width is a dispatch of its own, bfloat16 through integer bits.

IREE 3.13 gets these wrong or refuses them: a widening fused into a product or into a sum over leading axes
reads other elements, and vectors of bfloat16 have no loads ("failed to legalize vector.bitcast").
"""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir.backends.emit.builder import Builder
from lstm_ir.backends.emit.mlir_types import tensor
from lstm_ir.ir.types import DType, TensorType


def widen(e: Builder, v: ir.Value, t: TensorType) -> ir.Value:
    """f16 or bf16 as f32."""
    wide = t.with_dtype(DType.f32)
    if t.dtype is DType.f16:
        out = e.hlo("convert", [v], wide)
    else:
        bits = t.with_dtype(DType.i32)
        low = e.make("stablehlo.convert", [e.view(v, t, _bits(t))], [tensor(bits)]).result
        high = e.hlo("shift_left", [low, e.full(16, bits)], bits)
        out = e.hlo("bitcast_convert", [high], wide)
    return e.opaque(out, wide)


def narrow(e: Builder, v: ir.Value, t: TensorType) -> ir.Value:
    """f32 as bf16, to nearest and even; NaN stays one."""
    bits = t.with_dtype(DType.i32)
    high = e.hlo("shift_right_logical", [rounded(e, v, t), e.full(16, bits)], bits)
    small = e.make("stablehlo.convert", [high], [_bits(t)]).result
    return e.view(small, t, tensor(t.with_dtype(DType.bf16)))


def rounded(e: Builder, v: ir.Value, t: TensorType) -> ir.Value:
    """The bits of an f32, whose high half is those of the nearest bf16 (of two, the even one)."""
    bits, flags = t.with_dtype(DType.i32), t.with_dtype(DType.i1)
    x = e.hlo("bitcast_convert", [v], bits)
    last = e.hlo("shift_right_logical", [x, e.full(16, bits)], bits)
    odd = e.hlo("and", [last, e.full(1, bits)], bits)
    up = e.hlo("add", [e.hlo("add", [x, odd], bits), e.full(0x7FFF, bits)], bits)
    word = ir.Attribute.parse("#stablehlo<comparison_direction NE>")
    nan = e.hlo("compare", [v, v], flags, comparison_direction=word)
    return e.hlo("select", [nan, e.full(0x7FC00000, bits), up], bits)


def rounded_to_f16(e: Builder, v: ir.Value, t: TensorType) -> ir.Value:
    """The f32 that is the nearest f16 (of two, the even one); infinite from 65520 on by the convert after it.

    Drivers drop a convert to f16 whose result is widened again (NVIDIA 580).
    """
    bits, flags = t.with_dtype(DType.i32), t.with_dtype(DType.i1)
    x = e.hlo("bitcast_convert", [v], bits)
    odd = e.hlo("and", [e.hlo("shift_right_logical", [x, e.full(13, bits)], bits), e.full(1, bits)], bits)
    up = e.hlo("add", [e.hlo("add", [x, odd], bits), e.full(0xFFF, bits)], bits)
    whole = e.hlo("bitcast_convert", [e.hlo("and", [up, e.full(-(1 << 13), bits)], bits)], t)
    steps = e.hlo("round_nearest_even", [e.hlo("multiply", [v, e.full(2.0**24, t)], t)], t)
    small = e.hlo("multiply", [steps, e.full(2.0**-24, t)], t)  # subnormal: a multiple of 2^-24
    less, differs = (ir.Attribute.parse(f"#stablehlo<comparison_direction {w}>") for w in ("LT", "NE"))
    low = e.hlo("compare", [e.hlo("abs", [v], t), e.full(2.0**-14, t)], flags, comparison_direction=less)
    nan = e.hlo("compare", [v, v], flags, comparison_direction=differs)
    return e.hlo("select", [nan, v, e.hlo("select", [low, small, whole], t)], t)


def _bits(t: TensorType) -> ir.RankedTensorType:
    shape = ir.RankedTensorType(tensor(t)).shape
    return ir.RankedTensorType.get(shape, ir.IntegerType.get_signless(16))

"""Values in another float or integer dtype, in forms that IREE 3.13 does not get wrong."""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir.backends.emit import half
from lstm_ir.backends.emit.arithmetic import Calc
from lstm_ir.backends.emit.builder import Builder
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType, TensorType

_MADE = ("dot_general", "scan")  # in dispatches of their own


def converted(e: Builder, v: ir.Value, t: TensorType, dtype: DType) -> ir.Value:
    """`v` of type `t` as `dtype`, no saturation; what StableHLO calls convert."""
    if t.dtype is dtype:
        return v
    wide = t.with_dtype(dtype)
    if e.target is None:
        return e.hlo("convert", [v], wide)
    out = (_on_spirv if e.is_spirv else _converted)(e, v, t, dtype)
    if t.is_static:
        return out
    short = t.dtype.is_float and t.dtype.bits == 16
    # IREE keeps an extension of elements in the dispatch that reads it, without fusing the two: on
    # a GPU as shared memory of any size, on the CPU, in a join of rows ([1,B,8] before [T,B,8]), as
    # an array on the stack.
    if not (short if e.target.kind == "cpu" else t.dtype.bits < dtype.bits):
        return out
    return e.opaque(out, wide)


def apart(e: Builder, v: ir.Value, operand: Value, dtype: DType | None = None) -> ir.Value:
    """An operand of a product, on SPIR-V in no dispatch with what widened its elements; now of type `dtype`.

    IREE fuses the two, and at some sizes the code reads other elements. A dispatch and a buffer more,
    for such operands alone. Open sizes have that already (see `converted`).
    """
    now = operand.dtype if dtype is None else dtype
    if not e.is_spirv or not operand.type.is_static or not (now is not operand.dtype or _widened(operand)):
        return v
    return e.opaque(v, operand.type.with_dtype(now))


def _widened(v: Value) -> bool:
    """Whether a convert to more bits stands before `v`, with no product or loop between."""
    stack, seen = [v], {v}
    while stack:
        n = stack.pop().node
        if n.op.name == "convert" and n.inputs[0].dtype.bits < n.types[0].dtype.bits:
            return True
        if n.op.name not in _MADE:
            new = [x for x in n.inputs if x not in seen]
            seen.update(new)
            stack += new
    return False


def _on_spirv(e: Builder, v: ir.Value, t: TensorType, dtype: DType) -> ir.Value:
    if t.dtype in (DType.f16, DType.bf16):
        v, t = half.widen(e, v, t), t.with_dtype(DType.f32)
    if dtype is DType.bf16:
        v, t = _on_spirv(e, v, t, DType.f32), t.with_dtype(DType.f32)
        return half.narrow(e, v, t)
    if dtype is DType.f16 and t.dtype is DType.f32:
        v = half.rounded_to_f16(e, v, t)
    return _converted(e, v, t, dtype)


def _converted(e: Builder, v: ir.Value, t: TensorType, dtype: DType) -> ir.Value:
    if t.dtype is dtype:
        return v
    if dtype is DType.bf16:  # of fewer bits too: LLVM calls __truncsfbf2 where the processor has no such convert
        return _to_bf16(e, _converted(e, v, t, DType.f32), t.with_dtype(DType.f32))
    if t.dtype is DType.f64 and dtype is DType.f16:
        v, t = _odd(e, v, t), t.with_dtype(DType.f32)
    if not t.dtype.is_signed and t.dtype.bits < dtype.bits:
        return _from_unsigned(e, v, t, dtype)
    return e.hlo("convert", [v], t.with_dtype(dtype))


def _from_unsigned(e: Builder, v: ir.Value, t: TensorType, dtype: DType) -> ir.Value:
    """Unsigned elements and booleans in a wider type, through signed integers.

    IREE makes a product of elements that a convert widened one of the narrow elements, and takes
    these for signed: true counts as -1, 200 as -56. So a mask stands behind the convert to an
    integer, which costs nothing (LLVM drops it), and the convert to a float starts from signed ones.
    """
    signed = DType.i32 if t.dtype.bits < 32 else DType.i64
    whole = t.with_dtype(signed if dtype.is_float else dtype)
    out = e.hlo("convert", [v], whole)
    out = e.hlo("and", [out, e.full(2**t.dtype.bits - 1, whole)], whole)
    return e.hlo("convert", [out], t.with_dtype(dtype)) if dtype.is_float else out


def _to_bf16(e: Builder, v: ir.Value, t: TensorType) -> ir.Value:
    """f32 as bf16, rounded before the convert.

    IREE does the arithmetic of a dispatch in f32 where it is in bf16, and there drops a convert to
    bf16 whose result is widened again. It costs some operations on integers for each element.
    """
    bits = Calc(e, t.with_dtype(DType.i32))
    high = bits.op("and", half.rounded(e, v, t), -(1 << 16))
    short = e.hlo("bitcast_convert", [high], t)
    return e.hlo("convert", [short], t.with_dtype(DType.bf16))


def _odd(e: Builder, v: ir.Value, t: TensorType) -> ir.Value:
    """f64 as f32, cut off, with the last bit set where bits are lost: a second rounding is then right."""
    bits = Calc(e, t.with_dtype(DType.i64))
    held = e.hlo("bitcast_convert", [v], bits.t)
    lost = bits.add(bits.op("and", held, 2**29 - 1), 2**29 - 1)  # carries where bits are lost
    cut = bits.op("and", bits.op("or", held, lost), -(2**29))
    narrow = e.hlo("bitcast_convert", [cut], t)
    return e.hlo("convert", [narrow], t.with_dtype(DType.f32))

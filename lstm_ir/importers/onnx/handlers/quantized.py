"""Integers that stand for numbers: value = (integer - zero point) scale."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.onnx.tensors import dtype_of
from lstm_ir.importers.refusals import RefusedError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.nn.quantized import quantized_rows

LIMITS = {DType.u8: (0, 255), DType.i8: (-128, 127)}


def _along(c: Call, x: Value, v: Value) -> Value:
    """A scale or zero point as it meets x: one number, or one for each place of `axis`."""
    axis = c.integer("axis", 1) if c.opset >= 13 else 1
    if v.rank == 0 or v.shape == (1,):
        return li.reshape(v, ())
    if v.rank != 1:
        raise RefusedError(f"a scale of {v.rank} axes, for blocks, is not taken")
    axis = c.axis_of(axis, x.rank)
    c.agree("scale and axis", x.shape[axis], v.shape[0])
    return li.reshape(v, tuple(v.shape[0] if a == axis else 1 for a in range(x.rank)))


def _no_blocks(c: Call) -> None:
    if c.has_attribute("block_size") and c.integer("block_size") != 0:
        raise RefusedError("blocks are not taken")
    for name in ("saturate", "precision"):  # about elements that are not taken, and a wish
        if c.has_attribute(name):
            c.integer(name)


def quantized(x: Value, scale: Value, zero: Value | None, to: DType) -> Value:
    """round(x / scale) + zero point, held inside the integers; halves go to even."""
    if to not in LIMITS:
        raise RefusedError(f"integers of type {to} are not taken")
    wide = li.convert(li.round(x / scale), DType.f32)
    if zero is not None:
        wide = wide + li.convert(zero, DType.f32)
    low, high = LIMITS[to]
    return li.convert(li.clamp(float(low), wide, float(high)), to)


@taken("QuantizeLinear", 10, 13, 19, 21, 23, 24, 25, 28, refused="blocks; integers other than i8 and u8")
def quantize_linear(c: Call) -> Value:
    """round(x / scale) + zero point."""
    x, scale, zero = c.value(0), c.value(1), c.maybe(2)
    _no_blocks(c)
    to = DType.u8 if zero is None else zero.dtype
    if c.has_attribute("output_dtype") and (code := c.integer("output_dtype")):
        if zero is not None and dtype_of(code) is not to:
            raise RefusedError(f"output_dtype is {dtype_of(code)}, the zero point {to}")
        to = dtype_of(code)
    x = li.convert(x, scale.dtype)
    return quantized(x, _along(c, x, scale), None if zero is None else _along(c, x, zero), to)


@taken("DequantizeLinear", 10, 13, 19, 21, 23, 24, 25, 28, refused="blocks; integers other than i8, u8 and i32")
def dequantize_linear(c: Call) -> Value:
    """(x - zero point) scale."""
    x, scale, zero = c.value(0), c.value(1), c.maybe(2)
    _no_blocks(c)
    to = scale.dtype
    if c.has_attribute("output_dtype") and (code := c.integer("output_dtype")):
        to = dtype_of(code)
    wide = li.convert(x, DType.i32)
    if zero is not None:
        wide = wide - li.convert(_along(c, x, zero), DType.i32)
    inside = scale.dtype if scale.dtype.bits > 16 else DType.f32
    return li.convert(li.convert(wide, inside) * li.convert(_along(c, x, scale), inside), to)


@taken("DynamicQuantizeLinear", 11)
def dynamic_quantize_linear(c: Call) -> tuple[Value, Value, Value]:
    """u8 integers whose range is that of the operand and 0; with it scale and zero point."""
    return quantized_rows(c.value(0))


@taken("DynamicQuantizeMatMul", 1, domain="com.microsoft", refused="rows other than f32; weights other than i8 and u8")
def dynamic_quantize_matmul(c: Call) -> Value:
    """Rows that become u8, by integers with scales; a bias."""
    x, w, scale, zero, bias = c.value(0), c.value(1), c.value(2), c.maybe(3), c.maybe(4)
    if w.rank != 2:
        raise RefusedError(f"B is {w.type}, not a matrix")
    columns = (None if v is None else li.reshape(v, (1,)) if v.rank == 0 else v for v in (scale, zero))
    y = li.dynamic_quantize_matmul(x, w, *columns)
    return y if bias is None else y + bias


@taken("MatMulInteger", 10)
def matmul_integer(c: Call) -> Value:
    """(A - zero point) (B - zero point), in i32; zero points for rows of A and columns of B."""
    a, b = (li.convert(c.value(i), DType.i32) for i in (0, 1))
    for i, name in ((2, "rows"), (3, "columns")):
        zero = c.maybe(i)
        if zero is None:
            continue
        zero = li.convert(zero, DType.i32)
        if zero.shape == (1,):
            zero = li.reshape(zero, ())
        elif zero.rank == 1 and name == "rows":
            zero = li.expand_dims(zero, 1)
        a, b = (a - zero, b) if name == "rows" else (a, b - zero)
    return li.matmul(a, b)

"""Integers that stand for numbers: value = (integer - zero point) scale."""

from __future__ import annotations

from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.narrow import LIMITS, Narrow, name_of
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.onnx.tensors import dtype_of
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.nn.quantized import quantized_rows
from lstm_ir.ops.primitive.window import slice_axis

INTEGERS = {"UINT8": DType.u8, "INT8": DType.i8, "INT32": DType.i32}


def _along(c: Call, x: Value, v: Value) -> Value:
    """A scale or zero point as it meets x: one number, one for each place of `axis`, or one for each block along it."""
    axis = c.integer("axis", 1) if c.opset >= 13 else 1
    block = c.integer("block_size", 0) if c.opset >= 21 else 0
    if not block and (v.rank == 0 or v.shape == (1,)):
        return li.reshape(v, ())
    axis = c.axis_of(axis, x.rank)
    if block:
        n, blocks = x.shape[axis], v.shape[axis] if v.rank == x.rank else -1
        others = [a for a in range(x.rank) if a != axis]
        if not isinstance(n, int) or blocks != -(-n // block) or any(v.shape[a] != x.shape[a] for a in others):
            raise NodeRefusedError(f"a scale {v.type} for blocks of {block} along axis {axis} of {x.type}")
        wide = li.broadcast_to(li.expand_dims(v, axis + 1), (*v.shape[: axis + 1], block, *v.shape[axis + 1 :]))
        whole = li.reshape(wide, (*v.shape[:axis], blocks * block, *v.shape[axis + 1 :]))
        return slice_axis(whole, axis, 0, n)
    if v.rank != 1:
        raise NodeRefusedError(f"a scale of {v.rank} axes without block_size is not taken")
    c.agree("scale and axis", x.shape[axis], v.shape[0])
    return li.reshape(v, tuple(v.shape[0] if a == axis else 1 for a in range(x.rank)))


def _kind(v: Value | Narrow) -> str:
    return v.kind if isinstance(v, Narrow) else {d: n for n, d in INTEGERS.items()}.get(v.dtype, str(v.dtype))


def _held(v: Value | Narrow) -> Value:
    return v.value if isinstance(v, Narrow) else v


def quantized(x: Value, scale: Value, zero: Value | None, kind: str) -> Value | Narrow:
    """round(x / scale) + zero point, held inside the integers; halves go to even."""
    low, high = LIMITS.get(kind, {"UINT8": (0, 255), "INT8": (-128, 127)}.get(kind, (0, 0)))
    if low == high or kind == "UINT64":
        raise NodeRefusedError(f"integers of type {kind} are not taken")
    wide = li.convert(li.round(x / scale), DType.f32)
    if zero is not None:
        wide = wide + li.convert(zero, DType.f32)
    held = li.clamp(float(low), wide, float(high))
    return Narrow(li.convert(held, DType.i32), kind) if kind in LIMITS else li.convert(held, INTEGERS[kind])


@taken("QuantizeLinear", 10, 13, 19, 21, 23, 24, 25, 28, refused="results other than i8, u8, i16, u16, i4 and u4")
def quantize_linear(c: Call) -> Any:
    """round(x / scale) + zero point."""
    x, scale, zero = c.value(0), c.value(1), c.converts(2) if c.has(2) else None
    if c.has_attribute("saturate"):  # of floats of eight bits, which are not taken
        c.integer("saturate")
    to = "UINT8" if zero is None else _kind(zero)
    if c.has_attribute("output_dtype") and (code := c.integer("output_dtype")):
        if zero is not None and name_of(code) != to:
            raise NodeRefusedError(f"output_dtype is {name_of(code)}, the zero point {to}")
        to = name_of(code)
    inside = _precision(c, scale)
    x, scale = li.convert(x, inside), li.convert(scale, inside)
    return quantized(x, _along(c, x, scale), None if zero is None else _along(c, x, _held(zero)), to)


def _precision(c: Call, scale: Value) -> DType:
    """The type of the division: since operator set 23 an attribute may say it, before it is that of the scale."""
    code = c.integer("precision", 0) if c.opset >= 23 else 0
    found = dtype_of(code) if code else scale.dtype
    if not found.is_float:
        raise NodeRefusedError(f"it divides elements of type {found}, which are no floats")
    return found


@taken("DequantizeLinear", 10, 13, 19, 21, 23, 24, 25, 28, refused="floats of eight and four bits")
def dequantize_linear(c: Call) -> Value:
    """(x - zero point) scale."""
    given, scale, zero = c.converts(0), c.value(1), c.converts(2) if c.has(2) else None
    if (_kind(given) not in INTEGERS and _kind(given) not in LIMITS) or _kind(given) == "UINT64":
        raise NodeRefusedError(f"integers of type {_kind(given)} are not taken")
    x, to = _held(given), scale.dtype
    if c.has_attribute("output_dtype") and (code := c.integer("output_dtype")):
        to = dtype_of(code)
    wide = li.convert(x, DType.i32)
    if zero is not None:
        wide = wide - li.convert(_along(c, x, _held(zero)), DType.i32)
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
        raise NodeRefusedError(f"B is {w.type}, not a matrix")
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

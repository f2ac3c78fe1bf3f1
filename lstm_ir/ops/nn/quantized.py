"""`dynamic_quantize_matmul`: a product of rows that become u8 by the range of all of them, and stored integers.

    low = min(x, 0)   high = max(x, 0)   s = (high - low) / 255, or 1 where that is 0   z = round(-low / s)
    p = clip(round(x / s) + z, 0, 255)
    y = (p - z) (w - zero) * (s * scale)          the sums are of i32

Source: ONNX, DynamicQuantizeLinear and MatMulInteger; onnxruntime's op DynamicQuantizeMatMul. Where all of x is 0 the
specification divides by 0; 1 is taken, as onnxruntime does. The gradient goes straight through the rounding of x, as
if the product were x ((w - zero) scale): Bengio et al., "Estimating or propagating gradients through stochastic
neurons", 2013.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.opdef import Level, define, need
from lstm_ir.ir.pullback import Cts, only
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import as_values
from lstm_ir.ops.primitive.fill import ones
from lstm_ir.ops.primitive.linear import matmul
from lstm_ir.ops.primitive.reduce import max, min, sum
from lstm_ir.ops.primitive.shape import swapaxes

Array = np.ndarray[Any, Any]
STORED = (DType.i8, DType.u8)


def _types(x: TensorType, w: TensorType, scale: TensorType, zero: TensorType | None) -> TensorType:
    need(x.dtype is DType.f32 and x.rank >= 1, f"rows are {x}, expected f32[..,K]")
    need(w.dtype in STORED and w.rank == 2, f"w is {w}, expected i8[K,N] or u8[K,N]")
    need(x.shape[-1] == w.shape[0], f"rows have {x.shape[-1]} elements, w {w.shape[0]} rows")
    one_or_all = ((1,), (w.shape[1],))
    need(scale.dtype is DType.f32 and scale.shape in one_or_all, f"scale is {scale}, expected f32[1] or f32[N]")
    if zero is not None:
        need(
            zero.dtype is w.dtype and zero.shape in one_or_all, f"zero is {zero}, expected {w.dtype}[1] or {w.dtype}[N]"
        )
    return x.with_shape((*x.shape[:-1], w.shape[1]))


def _numpy(x: Array, w: Array, scale: Array, zero: Array | None) -> Array:
    step, middle, p = _quantized(x)
    q = w.astype(np.int32) - (0 if zero is None else zero.astype(np.int32))
    sums = (p.astype(np.int32) - np.int32(middle)) @ q
    return np.asarray(sums.astype(np.float32) * (step * scale))


def _quantized(x: Array) -> tuple[Any, Any, Array]:
    """The scale, the zero point, and the integers."""
    low, high = np.min(x, initial=np.float32(0)), np.max(x, initial=np.float32(0))
    step = np.float32(high - low) / np.float32(255)
    step = np.float32(1) if step == 0 else step
    middle = np.clip(np.rint(-low / step), 0, 255)
    return step, middle, np.clip(np.rint(x / step) + middle, 0, 255)


def quantized_rows(x: Value) -> tuple[Value, Value, Value]:
    """x as u8 integers, their scale f32[] and their zero point u8[], by the range of all elements and 0."""
    low, high = e.minimum(min(x), 0.0), e.maximum(max(x), 0.0)
    step = (high - low) / 255.0
    step = e.select(e.equal(step, 0.0), ones((), x.dtype), step)
    middle = e.clamp(0.0, e.round(-low / step), 255.0)
    p = e.clamp(0.0, e.round(x / step) + middle, 255.0)
    return e.convert(p, DType.u8), step, e.convert(middle, DType.u8)


def _expand(x: Value, w: Value, scale: Value, zero: Value | None) -> Value:
    p, step, middle = quantized_rows(x)
    q = _integers(w, zero, DType.i32)
    sums = matmul(e.convert(p, DType.i32) - e.convert(middle, DType.i32), q)
    return e.convert(sums, DType.f32) * (step * scale)


def _integers(w: Value, zero: Value | None, to: DType) -> Value:
    wide = e.convert(w, to)
    return wide if zero is None else wide - e.convert(zero, to)


def _vjp(node: Node, cts: Cts) -> Sequence[Value | None]:
    x, w, scale, zero = _operands(node)
    ct, q = only(cts), _integers(w, zero, DType.f32)
    of_columns = sum(ct * matmul(x, q), tuple(range(x.rank - 1)))
    of_scale = of_columns if scale.shape == of_columns.shape else sum(of_columns, 0, keepdims=True)
    return matmul(ct * scale, swapaxes(q, 0, 1)), None, of_scale, None


def _operands(node: Node) -> tuple[Value, Value, Value, Value | None]:
    x, w, scale, *zero = node.inputs
    return x, w, scale, zero[0] if zero else None


DYNAMIC_QUANTIZE_MATMUL = define(
    "dynamic_quantize_matmul", "x w scale zero?",
    types=_types, numpy=_numpy, vjp=_vjp, expand=_expand, level=Level.composite,
)  # fmt: skip


def dynamic_quantize_matmul(x: Any, w: Any, scale: Any, zero: Any = None) -> Value:
    """x f32 [..., K], as u8 by the range of all its elements, by integers w [K, N]: f32 [..., N].

    w: i8 or u8, which stand for `(w - zero) scale`; scale: f32 [1], or [N] for the columns; zero: of w's dtype,
    [1] or [N], 0 if not given. The range changes from call to call, so a row's result depends on the other rows.
    The option `precision="int8-dynamic"` gives each row a range of its own, and kernels.
    """
    rows, matrix, factor = as_values("dynamic_quantize_matmul", x, w, scale)
    middle = zero if zero is None or isinstance(zero, Value) else constant(zero)
    return make(DYNAMIC_QUANTIZE_MATMUL, rows, matrix, factor, middle).values[0]


def product_of_floats(node: Node) -> Value:
    """The same product without the rounding of x: x ((w - zero) scale)."""
    x, w, scale, zero = _operands(node)
    return matmul(x, _integers(w, zero, DType.f32) * scale)

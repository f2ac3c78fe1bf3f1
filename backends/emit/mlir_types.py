"""Types of the graph as MLIR's: elements, tensors, lists of integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from iree.compiler import ir

from lstm_ir.ir.types import DType, TensorType

_ELEMENT: dict[DType, Callable[[], ir.Type]] = {
    DType.f16: lambda: ir.F16Type.get(),
    DType.bf16: lambda: ir.BF16Type.get(),
    DType.f32: lambda: ir.F32Type.get(),
    DType.f64: lambda: ir.F64Type.get(),
    DType.i8: lambda: ir.IntegerType.get_signless(8),
    DType.u8: lambda: ir.IntegerType.get_unsigned(8),
    DType.i32: lambda: ir.IntegerType.get_signless(32),
    DType.u32: lambda: ir.IntegerType.get_unsigned(32),
    DType.i64: lambda: ir.IntegerType.get_signless(64),
    DType.i1: lambda: ir.IntegerType.get_signless(1),
}


def element(dtype: DType) -> ir.Type:
    """The MLIR element type."""
    return _ELEMENT[dtype]()


def tensor(t: TensorType) -> ir.RankedTensorType:
    """The MLIR tensor type; named sizes are `?`."""
    dynamic = ir.ShapedType.get_dynamic_size()
    return ir.RankedTensorType.get([d if isinstance(d, int) else dynamic for d in t.shape], element(t.dtype))


def array_attr(values: Sequence[int]) -> ir.Attribute:
    """array<i64: ...>."""
    return ir.DenseI64ArrayAttr.get([int(v) for v in values])


SIGNED = {DType.u8: DType.i8, DType.u32: DType.i32}  # the signed type of an unsigned one's width
UNSIGNED = {signed: unsigned for unsigned, signed in SIGNED.items()}

"""Tensors of PyTorch as data of the graph, and PyTorch's element types as ours."""

from __future__ import annotations

from typing import Any

from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import IRError
from lstm_ir.ir.foreign_arrays import as_numpy
from lstm_ir.ir.types import DType

DTYPES = {
    "float16": DType.f16, "bfloat16": DType.bf16, "float32": DType.f32, "float64": DType.f64, "int8": DType.i8,
    "uint8": DType.u8, "int32": DType.i32, "uint32": DType.u32, "int64": DType.i64, "bool": DType.i1,
}  # fmt: skip
"""Element types by PyTorch's names; those that are missing here are refused."""


def dtype_of(kind: Any) -> DType:
    """The element type of a `torch.dtype`."""
    name = str(kind).removeprefix("torch.")
    if name not in DTYPES:
        raise NodeRefusedError(f"elements of type {name} are not taken")
    return DTYPES[name]


def data_of(tensor: Any) -> Data:
    """A copy of the elements: PyTorch may go on to change its own."""
    dtype = dtype_of(tensor.dtype)
    if str(tensor.layout) != "torch.strided":
        raise NodeRefusedError(f"a tensor of layout {str(tensor.layout).removeprefix('torch.')} is not taken")
    if tensor.is_meta:
        raise NodeRefusedError("it is on the device meta, and has no elements")
    host = tensor.detach().cpu().contiguous()
    try:
        return Data.of(as_numpy(host, lambda why: NodeRefusedError(f"it is {why}")).copy(), dtype)  # type: ignore[arg-type, return-value]
    except IRError as e:
        raise NodeRefusedError(f"its data cannot be taken: {e}") from e

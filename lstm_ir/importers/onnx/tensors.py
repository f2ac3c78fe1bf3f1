"""Tensors of a file as data of the graph, each read once."""

from __future__ import annotations

import math
import os
from typing import Any

from lstm_ir.importers.onnx.narrow import LIMITS, Narrow, held_data, name_of
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import IRError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant, weight
from lstm_ir.ir.types import DType

DTYPES = {
    "FLOAT": DType.f32, "DOUBLE": DType.f64, "FLOAT16": DType.f16, "BFLOAT16": DType.bf16, "INT8": DType.i8,
    "UINT8": DType.u8, "INT32": DType.i32, "UINT32": DType.u32, "INT64": DType.i64, "BOOL": DType.i1,
}  # fmt: skip
"""Element types by ONNX's names; those that are missing here are refused."""


def dtype_of(kind: Any) -> DType:
    """The element type of the library's enumeration, or of its number in an attribute."""
    import onnx_ir

    try:
        name = onnx_ir.DataType(kind).name
    except ValueError:
        raise NodeRefusedError(f"the element type {kind!r} does not exist") from None
    return dtype_named(name)


def dtype_named(name: str) -> DType:
    """The element type by ONNX's name."""
    if name not in DTYPES:
        raise NodeRefusedError(f"elements of type {name} are not taken")
    return DTYPES[name]


class Tensors:
    """Reads tensors, and keeps what was read."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._data: dict[int, tuple[Any, Data]] = {}  # with the tensor, whose id would be used again

    def data(self, tensor: Any) -> Data:
        """`read_tensor`, once for each."""
        if id(tensor) not in self._data:
            self._data[id(tensor)] = (tensor, read_tensor(tensor))
        return self._data[id(tensor)][1]

    def weight(self, name: str, data: Data) -> Value:
        """A weight of the graph."""
        return weight(name, data)


def literal(tensor: Any) -> Value | Narrow:
    """A constant of the elements."""
    data, name = read_tensor(tensor), name_of(tensor.dtype)
    return Narrow(constant(data), name) if name in LIMITS else constant(data)


def read_tensor(tensor: Any) -> Data:
    """The elements, held in wider ones where no op has their type; RefusedError where they are not there, or are not as
    many as the shape says.
    """
    import onnx_ir

    if tensor is None:
        raise NodeRefusedError("the tensor has no data")
    try:
        kind, shape = tensor.dtype, tuple(tensor.shape.numpy())
    except (ValueError, TypeError) as e:  # the library reads them when it is asked
        raise NodeRefusedError(f"its type cannot be read: {e}") from e
    held = name_of(kind)
    dtype = None if held in LIMITS else dtype_of(kind)
    if isinstance(tensor, onnx_ir.ExternalTensor) and not isinstance(tensor.location, str):
        raise NodeRefusedError(f"its data is in a file whose name is no text: {tensor.location!r}")
    if isinstance(tensor, onnx_ir.ExternalTensor) and not str(tensor.base_dir):
        raise NodeRefusedError("its data is in another file, and the model was not read from a folder")
    if isinstance(tensor, onnx_ir.ExternalTensor) and os.path.exists(tensor.path) and not os.path.isfile(tensor.path):
        raise NodeRefusedError(f"its data is in {tensor.location}, which is not a regular file")
    if isinstance(tensor, onnx_ir.ExternalTensor) and tensor.length and tensor.length != tensor.nbytes:
        # The library reads what the shape says, wherever the data ends.
        raise NodeRefusedError(f"its data has {tensor.length} bytes in {tensor.location}, its type {tensor.nbytes}")
    if math.prod(shape) and _without_data(tensor):  # first: the library would make zeros of any size
        raise NodeRefusedError(f"its data is missing, and its shape is {list(shape)}")
    try:
        array = tensor.numpy()
    except Exception as e:  # whatever a foreign reader raises over damaged or missing data
        raise NodeRefusedError(f"its data cannot be read: {e}") from e
    if array.shape != shape:
        raise NodeRefusedError(f"its data has the shape {list(array.shape)}, its type {list(shape)}")
    try:
        return held_data(array, held) if dtype is None else Data.of(array, dtype)
    except IRError as e:
        raise NodeRefusedError(f"its data cannot be taken: {e}") from e


def _without_data(tensor: Any) -> bool:
    """Whether a file has no field of data for a tensor, as of a model without its weights: the library gives zeros."""
    import onnx_ir.serde

    if not isinstance(tensor, onnx_ir.serde.TensorProtoTensor):
        return False
    proto = tensor.raw
    repeated = (proto.float_data, proto.int32_data, proto.int64_data, proto.double_data, proto.uint64_data)
    return not proto.HasField("raw_data") and not any(repeated)

"""Tensors of TensorFlow's messages as data of the graph."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import IRError
from lstm_ir.ir.types import DType

Array = np.ndarray[Any, Any]
STRING, RESOURCE, VARIANT = 7, 20, 21
NAMES = {
    1: "float", 2: "double", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64", 9: "int64",
    10: "bool", 11: "qint8", 12: "quint8", 13: "qint32", 14: "bfloat16", 15: "qint16", 16: "quint16", 17: "uint16",
    18: "complex128", 19: "half", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64",
}  # fmt: skip
DTYPES = {
    1: DType.f32, 2: DType.f64, 3: DType.i32, 4: DType.u8, 6: DType.i8, 9: DType.i64, 10: DType.i1, 14: DType.bf16,
    19: DType.f16, 22: DType.u32,
}  # fmt: skip
"""Element types by TensorFlow's numbers; those that are missing here are refused."""
COMPLEX = {8: DType.f32, 18: DType.f64}
"""The parts of complex element types."""
_REFERENCE = 100  # TF 1's references to a variable have their own numbers
_FIELDS = {
    DType.f32: "float_val", DType.f64: "double_val", DType.i32: "int_val", DType.u8: "int_val", DType.i8: "int_val",
    DType.i64: "int64_val", DType.i1: "bool_val", DType.bf16: "half_val", DType.f16: "half_val",
    DType.u32: "uint32_val",
}  # fmt: skip
MAX_ELEMENTS = 2**31  # of one tensor


def dtype_name(number: int) -> str:
    """TensorFlow's name of an element type."""
    number = number - _REFERENCE if number > _REFERENCE else number
    return NAMES.get(number, f"type {number}")


def dtype_of(number: int) -> DType:
    """The element type of TensorFlow's number, of a reference too."""
    plain = number - _REFERENCE if number > _REFERENCE else number
    if plain not in DTYPES:
        raise NodeRefusedError(f"elements of type {dtype_name(number)} are not taken")
    return DTYPES[plain]


def shape_of(proto: Any) -> tuple[int | None, ...] | None:
    """Sizes of a shape, None for one that is not known; None altogether where the rank is not known."""
    if proto.unknown_rank:
        return None
    return tuple(None if d.size < 0 else int(d.size) for d in proto.dim)


def read_tensor(proto: Any) -> Data:
    """The elements of a TensorProto; RefusedError where they are not there, or are not as many as the shape says."""
    dtype = dtype_of(proto.dtype)
    shape, count = _shape(proto)
    if proto.tensor_content:
        return of_bytes(proto.tensor_content, dtype, shape)
    given = np.asarray(getattr(proto, _FIELDS[dtype]))
    if dtype in (DType.f16, DType.bf16):
        given = given.astype(np.int64).astype(np.uint16).view(dtype.numpy)
    return _data(_filled(given, count, shape).astype(dtype.numpy), dtype)


def read_complex(proto: Any) -> Array:
    """The elements of a TensorProto of complex64 or complex128; RefusedError as for `read_tensor`."""
    shape, count = _shape(proto)
    kind = np.dtype(np.complex64 if COMPLEX[proto.dtype] is DType.f32 else np.complex128)
    if proto.tensor_content:
        return _array(proto.tensor_content, kind, shape, dtype_name(proto.dtype))
    pairs = np.asarray(proto.scomplex_val if kind.itemsize == 8 else proto.dcomplex_val, np.float64)
    if len(pairs) % 2:
        raise NodeRefusedError(f"the tensor {list(shape)} has half a complex number in the file")
    return _filled(pairs[::2] + 1j * pairs[1::2], count, shape).astype(kind)


def _shape(proto: Any) -> tuple[tuple[int, ...], int]:
    """The shape of a TensorProto, and how many elements it has."""
    sizes = shape_of(proto.tensor_shape)
    if sizes is None or None in sizes:
        raise NodeRefusedError("the tensor has no whole shape")
    shape = tuple(d for d in sizes if d is not None)
    count = prod(shape)
    if count > MAX_ELEMENTS:
        raise NodeRefusedError(f"the tensor says that it has {count} elements, more than {MAX_ELEMENTS}")
    return shape, count


def _filled(given: Array, count: int, shape: tuple[int, ...]) -> Array:
    """Elements of which TensorFlow writes equal ones at the end once."""
    if not 1 <= len(given) <= count and count:
        raise NodeRefusedError(f"the tensor {list(shape)} has {len(given)} elements in the file")
    out: Array = np.empty(count, given.dtype)
    out[: len(given)] = given[:count]
    if count:
        out[len(given) :] = out[len(given) - 1]
    return out.reshape(shape)


def of_bytes(content: Any, dtype: DType, shape: tuple[int, ...]) -> Data:
    """Elements from their bytes, the lowest first."""
    kind = np.dtype(np.uint8 if dtype is DType.i1 else dtype.numpy)
    found = _array(content, kind, shape, str(dtype))
    return _data(found != 0 if dtype is DType.i1 else found, dtype)


def _array(content: Any, kind: np.dtype[Any], shape: tuple[int, ...], name: str) -> Array:
    wanted, found = prod(shape) * kind.itemsize, len(content)
    if wanted != found:
        raise NodeRefusedError(f"the tensor {list(shape)} of {name} has {found} bytes in the file, not {wanted}")
    return np.frombuffer(content, kind).reshape(shape)


def _data(array: Array, dtype: DType) -> Data:
    try:
        return Data.of(array, dtype)
    except IRError as e:
        raise NodeRefusedError(f"the tensor cannot be taken: {e}") from e

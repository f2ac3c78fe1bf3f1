"""Arrays of other libraries (PyTorch, JAX and all that speak DLPack) as NumPy's; none of the libraries is imported."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from lstm_ir.ir.device_array import DeviceArray
from lstm_ir.ir.errors import LstmIrError
from lstm_ir.ir.foreign_errors import reason
from lstm_ir.ir.types import DType

Refuse = Callable[[str], LstmIrError]
"""The caller's error; its text says what was got."""

_HOST = (1, 3, 11, 13)  # DLPack's numbers: the processor, and host memory that CUDA or ROCm made
_DEVICES = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 14: "oneAPI"}
_BFLOAT, _UINT = 4, 1  # DLPack's kinds of elements
_TENSOR = b"dltensor"
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)  # of our own: the attribute of pythonapi is shared with other libraries, which may give it other types


class _Tensor(ctypes.Structure):
    """The first fields of DLPack's DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
    ]  # fmt: skip


class _Bits:
    """A capsule whose elements are read as bits: what NumPy asks of an array of another library."""

    def __init__(self, capsule: object, place: tuple[int, int]) -> None:
        self._capsule, self._place = capsule, place

    def __dlpack__(self, **_: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._place


def as_numpy(value: Any, refuse: Refuse) -> Any:
    """An array of another library as a NumPy array over its memory; everything else as it is.

    A tensor that requires a gradient is taken without it. bf16 elements have the dtype of `ml_dtypes`.
    What lies on a device, and what is no dense array, is refused.
    """
    if isinstance(value, np.ndarray) or not hasattr(type(value), "__dlpack__"):
        return value
    if isinstance(value, DeviceArray):
        return value.numpy()
    kind = type(value).__name__
    try:
        if getattr(value, "requires_grad", False) is True:
            value = value.detach()
        if hasattr(value, "is_neg") and value.is_neg():  # a sign that PyTorch keeps beside the memory; DLPack has none
            value = value.resolve_neg()
        place = tuple(map(int, value.__dlpack_device__()))
    except Exception as e:  # of whichever library it is
        return _by_numpy(value, kind, refuse, e)
    if place[0] not in _HOST:
        where = _DEVICES.get(place[0], f"number {place[0]} of DLPack's")
        move = "; move it to host memory first: tensor.cpu() of PyTorch, jax.device_get(array) of JAX"
        raise refuse(f"a {kind} on a device ({where}){move}")
    try:
        return np.from_dlpack(value)
    except Exception as e:
        bits = _brain_floats(value, (place[0], place[1]))
        return _by_numpy(value, kind, refuse, e) if bits is None else bits


def _brain_floats(value: Any, place: tuple[int, int]) -> np.ndarray[Any, Any] | None:
    """An array of bf16, which NumPy's reader of DLPack does not have: its bits, seen as bf16. None for all others."""
    try:
        capsule = value.__dlpack__()
        tensor = _Tensor.from_address(_pointer(capsule, _TENSOR))
        if (tensor.code, tensor.bits, tensor.lanes) != (_BFLOAT, 16, 1):
            return None
        tensor.code = _UINT  # in this capsule alone: the array itself keeps its kind
        bits: Any = _Bits(capsule, place)
        out: np.ndarray[Any, Any] = np.from_dlpack(bits).view(DType.bf16.numpy)
    except Exception:  # it is refused with the reason that NumPy gave
        return None
    out.flags.writeable = False  # such a capsule does not say whether the array may be written
    return out


def _by_numpy(value: Any, kind: str, refuse: Refuse, why: Exception) -> Any:
    """What the library itself makes NumPy's, such as an array in several parts; else refused with `why`."""
    try:
        out = np.asarray(value)
    except Exception:
        out = None
    if out is None or out.dtype.hasobject:
        raise refuse(f"a {kind} that is no dense array in host memory: {reason(why).splitlines()[0]}") from why
    return out

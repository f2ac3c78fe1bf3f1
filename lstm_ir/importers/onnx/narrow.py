"""Integers of types that no op of the graph has, i16, u16, u64, and of four and two bits, held in wider ones.

Cast, QuantizeLinear and DequantizeLinear read and make them; what only moves elements hands them on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.data import Data
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType

LIMITS = {
    "INT16": (-(2**15), 2**15 - 1), "UINT16": (0, 2**16 - 1), "INT4": (-8, 7), "UINT4": (0, 15),
    "INT2": (-2, 1), "UINT2": (0, 3), "UINT64": (0, 2**64 - 1),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Narrow:
    """Elements of the type `kind` in ONNX's words, as i32; u64 as i64, below 2^63."""

    value: Value
    kind: str

    @property
    def dtype(self) -> DType:
        """The type of what holds them."""
        return self.value.dtype


CAST = ("INT16", "UINT16")  # types that a Cast makes


def refuse_outside(kind: str, what: str) -> None:
    """RefusedError, with what to do, for an input or an output of the model of a type that arrays do not have."""
    if kind not in LIMITS:
        return
    wide = "INT64" if kind == "UINT64" else "INT32"
    behind = f", with a Cast to {kind} behind it" if kind in CAST else ""
    how = {
        "input": f"state it as {wide} in the file{behind}, or fix it by constants (--constant)",
        "output": f"put a Cast to {wide} before it in the file",
    }[what]
    raise NodeRefusedError(f"elements of type {kind} are taken inside of a model alone: {how}")


def name_of(kind: Any) -> str:
    """The name of the library's enumeration, or of its number; empty where it does not exist."""
    import onnx_ir

    try:
        return str(onnx_ir.DataType(kind).name)
    except ValueError:
        return ""


def held_data(array: Any, kind: str) -> Data:
    """The elements of an array as those that hold them; RefusedError for a u64 of 2^63 and more."""
    if kind == "UINT64":
        if (np.asarray(array) > np.uint64(2**63 - 1)).any():
            raise NodeRefusedError("it has elements of 2^63 and more")
        return Data.of(np.asarray(array).astype(np.int64), DType.i64)
    return Data.of(np.asarray(array).astype(np.int32), DType.i32)


def narrowed(x: Value, kind: str) -> Narrow:
    """A cast: of integers the low bits stay; RefusedError for u64, and for few bits, whose casts ONNX leaves open."""
    if kind not in CAST:
        raise NodeRefusedError(f"a cast to elements of type {kind} is not taken")
    wide = li.convert(x, DType.i32)
    low = LIMITS[kind][0]
    return Narrow(li.remainder(li.remainder(wide - low, 2**16) + 2**16, 2**16) + low, kind)

"""Tensors of the Open Inference Protocol as arrays and back: JSON numbers, or bytes behind the JSON.

Whatever a client sends ends as an array of the element type that the program takes, or as a RequestError: lists are
looked at level by level before NumPy sees them, so that no text, object or ragged list becomes an array.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lstm_ir.backends.files.strict_json import MinusZero
from lstm_ir.ir.errors import CallError
from lstm_ir.ir.signature import Port
from lstm_ir.ir.types import DType

Array = np.ndarray[Any, Any]
DATATYPES = {
    "BOOL": DType.i1, "INT8": DType.i8, "UINT8": DType.u8, "INT32": DType.i32, "UINT32": DType.u32, "INT64": DType.i64,
    "FP16": DType.f16, "BF16": DType.bf16, "FP32": DType.f32, "FP64": DType.f64,
}  # fmt: skip
WORDS = {v: k for k, v in DATATYPES.items()}
_RANK = 32
_SIZE = 2**63 - 1  # no array has more; products of sizes stay numbers that a message can hold
_PIECE = 1 << 13  # elements that become text at a time
_BYTES = ("FP16", "BF16")  # the protocol has no JSON numbers of these
_WHOLE = {int, MinusZero}
_NUMBERS = (
    {"BOOL": {bool}}
    | {w: _WHOLE for w in WORDS.values() if "INT" in w}
    | dict.fromkeys(("FP32", "FP64"), _WHOLE | {float})
)


class RequestError(CallError):
    """A request that does not follow the protocol; `status` is HTTP's number for it."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def described(port: Port) -> dict[str, Any]:
    """A port as model metadata has it; named sizes are -1."""
    shape = [d if isinstance(d, int) else -1 for d in port.type.shape]
    return {"name": port.name, "datatype": WORDS[port.type.dtype], "shape": shape}


def shape_of(value: object, where: str) -> tuple[int, ...]:
    """A tensor's shape; sizes of 0 are refused, since other sizes beside them could be anything."""
    if not isinstance(value, list) or len(value) > _RANK or not all(type(n) is int and n > 0 for n in value):
        raise RequestError(f"{where}: shape is {str(value)[:80]}; expected a list of sizes of 1 or more")
    if max(value, default=0) > _SIZE:
        raise RequestError(f"{where}: shape has a size above 2^63 - 1")
    return tuple(value)


def from_json(data: object, port: Port, shape: tuple[int, ...], where: str) -> Array:
    """The array of `data`, which is flat, or nested as `shape` is."""
    word = WORDS[port.type.dtype]
    if word in _BYTES:
        raise RequestError(f"{where}: {word} is sent as binary data, not as JSON numbers")
    flat = _flat(data, shape, where)
    kinds = set(map(type, flat))
    if not kinds <= _NUMBERS[word]:
        wrong = sorted(k.__name__ for k in kinds - _NUMBERS[word])
        raise RequestError(f"{where}: data of {word} has {wrong[0]}")
    try:
        with np.errstate(over="ignore"):
            a = np.array(flat, port.type.dtype.numpy)
    except OverflowError:
        raise RequestError(f"{where}: a number does not fit {word}") from None
    if port.type.dtype.is_float and not np.isfinite(a).all():
        raise RequestError(f"{where}: a number does not fit {word}; NaN and infinity are sent as binary data")
    return a.reshape(shape)


def _flat(data: object, shape: tuple[int, ...], where: str) -> list[Any]:
    """Elements in row-major order."""
    if not isinstance(data, list):
        raise RequestError(f"{where}: data is no list")
    count = math.prod(shape)
    nested = bool(data) and isinstance(data[0], list)
    if not nested:
        if len(data) != count:
            raise RequestError(f"{where}: {len(data)} numbers; shape {list(shape)} has {count}")
        return data
    level: list[Any] = [data]
    for size in shape:
        if not all(type(part) is list and len(part) == size for part in level):
            raise RequestError(f"{where}: data is not nested as shape {list(shape)}")
        level = list(itertools.chain.from_iterable(level))
    return level


def from_bytes(data: memoryview, port: Port, shape: tuple[int, ...], where: str) -> Array:
    """The array of little-endian elements in row-major order."""
    dtype = port.type.dtype
    count = math.prod(shape)
    if len(data) != count * dtype.bytes:
        raise RequestError(
            f"{where}: {len(data)} bytes; {WORDS[dtype]} of shape {list(shape)} has {count * dtype.bytes}"
        )
    if dtype is DType.i1 and np.frombuffer(data, np.uint8).max(initial=0) > 1:
        raise RequestError(f"{where}: a boolean that is neither 0 nor 1")
    a = np.frombuffer(data, dtype.numpy).reshape(shape)
    return a if a.flags.aligned else a.copy()


def to_json(name: str, a: Array) -> str:
    """The elements as JSON has them: the text of a flat list.

    It is made piece by piece: Python's lock is held while one is, and all of them as a list would take eight times
    the array's memory.
    """
    need_json_numbers(name, word_of(a))
    need_finite(name, a)
    flat = a.reshape(-1)
    pieces = (json.dumps(flat[i : i + _PIECE].tolist())[1:-1] for i in range(0, flat.size, _PIECE))
    return f"[{', '.join(pieces)}]"


def need_json_numbers(name: str, word: str) -> None:
    """RequestError for an output of a datatype that the protocol has as bytes alone."""
    if word in _BYTES:
        raise RequestError(f"output {name}: {word} is given as binary data; ask for binary_data")


def need_finite(name: str, a: Array) -> None:
    """RequestError for NaN and infinity."""
    if DATATYPES[word_of(a)].is_float and not np.isfinite(a).all():
        raise RequestError(f"output {name} holds NaN or infinity, which JSON has not; ask for binary_data")


def word_of(a: Array) -> str:
    """The protocol's name of the element type."""
    return WORDS[DType.of(a.dtype)]


def to_bytes(a: Array) -> bytes:
    """The elements as little-endian bytes."""
    return np.ascontiguousarray(a).tobytes()


def names(ports: Sequence[Port]) -> str:
    """For messages."""
    return ", ".join(str(p) for p in ports)

"""The safetensors format: u64 header length, a JSON header, then the tensors without gaps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from lstm_ir.backends.files.memory import ALIGNMENT, Array, bytes_of, empty
from lstm_ir.ir.dims import LIMIT
from lstm_ir.ir.errors import IRError, PackageError
from lstm_ir.ir.types import DType, TensorType

_NAMES = {
    "F16": "f16", "BF16": "bf16", "F32": "f32", "F64": "f64", "I8": "i8", "U8": "u8",
    "I32": "i32", "U32": "u32", "I64": "i64", "BOOL": "i1",
}  # fmt: skip
_WORDS = {v: k for k, v in _NAMES.items()}
_HEADER = 64 << 20  # bytes


def read(path: Path) -> dict[str, Array]:
    """Every array of the file, by name."""
    with path.open("rb") as f:
        size = f.seek(0, 2)
        f.seek(0)
        return read_from(f, size, str(path))


def read_from(f: BinaryIO, size: int, where: str) -> dict[str, Array]:
    """The arrays of the `size` bytes that follow in `f`."""
    types, spans = _header(f, size, where)
    out: dict[str, Array] = {}
    for name in sorted(spans, key=lambda n: spans[n]):  # the file's order
        kind = types[name]
        try:
            a = empty(tuple(d for d in kind.shape if isinstance(d, int)), kind.dtype.numpy)
        except IRError as e:
            raise PackageError(f"{where}: {name}: {e}") from e
        place = bytes_of(a).data
        done = 0
        while done < len(place):
            data = f.read(min(1 << 20, len(place) - done))
            if not data:
                raise PackageError(f"{where}: {name}: the file ends too early")
            place[done : done + len(data)] = data
            done += len(data)
        if kind.dtype is DType.i1 and a.size and int(bytes_of(a).max()) > 1:
            raise PackageError(f"{where}: {name}: a boolean that is neither 0 nor 1")
        out[name] = a
    return {name: out[name] for name in types}


def _header(f: BinaryIO, size: int, where: str) -> tuple[dict[str, TensorType], dict[str, tuple[int, int]]]:
    length = int.from_bytes(f.read(8), "little") if size >= 8 else 0
    if not 2 <= length <= min(size - 8, _HEADER):
        raise PackageError(f"{where}: not a safetensors file, or one that is cut off")
    try:
        data = json.loads(f.read(length), object_pairs_hook=once)
    except (ValueError, RecursionError) as e:
        raise PackageError(f"{where}: a damaged header: {str(e)[:200]}") from e
    if not isinstance(data, dict):
        raise PackageError(f"{where}: the header is not an object")
    data.pop("__metadata__", None)
    types: dict[str, TensorType] = {}
    spans: dict[str, tuple[int, int]] = {}
    for name, entry in data.items():
        types[name], spans[name] = _entry(entry, f"{where}: {str(name)[:80]}")
    end = 0
    for name, (a, b) in sorted(spans.items(), key=lambda item: item[1]):
        if a != end:
            raise PackageError(f"{where}: {name[:80]}: the tensors overlap or leave a gap")
        end = b
    if end != size - 8 - length:
        raise PackageError(f"{where}: {size - 8 - length} bytes of data, the header says {end}")
    return types, spans


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which no name appears twice."""
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a name appears twice")
    return out


def _entry(entry: object, where: str) -> tuple[TensorType, tuple[int, int]]:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise PackageError(f"{where}: expected dtype, shape and data_offsets")
    shape, span = entry["shape"], entry["data_offsets"]
    for numbers in (shape, span):
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise PackageError(f"{where}: expected lists of sizes")
    word = entry["dtype"]
    if not isinstance(word, str) or word not in _NAMES:
        raise PackageError(f"{where}: element type {str(word)[:20]!r}")
    kind = DType(_NAMES[word])
    count = kind.bytes
    for n in shape:
        count *= n
    if len(shape) > 32 or count >= LIMIT or any(n >= LIMIT for n in shape):
        raise PackageError(f"{where}: the shape {str(shape)[:80]} is too large")
    if len(span) != 2 or span[1] - span[0] != count:
        raise PackageError(f"{where}: {kind}{shape} takes {count} bytes, data_offsets is {span}")
    return TensorType(tuple(shape), kind), (span[0], span[1])


def write(f: BinaryIO, weights: Mapping[str, Array]) -> None:
    """`weights` as safetensors, the data starting at a multiple of 64 bytes."""
    header: dict[str, Any] = {}
    end = 0
    for name, a in weights.items():
        word = _WORDS[DType.of(a.dtype).value]
        header[name] = {
            "dtype": word, "shape": list(a.shape), "data_offsets": [end, end + a.nbytes]
        }  # fmt: skip
        end += a.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    f.write(len(text).to_bytes(8, "little"))
    f.write(text)
    for a in weights.values():
        f.write(bytes_of(np.require(a, requirements="C")).data)

"""The safetensors format: u64 header length, a JSON header, then the tensors without gaps."""

from __future__ import annotations

import io
import json
import mmap
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, BinaryIO

import numpy as np

from lstm_ir.backends.files import strict_json
from lstm_ir.backends.memory import ALIGNMENT, ARRAYS, Array, bytes_of, empty, fill, size_of
from lstm_ir.ir.errors import PackageError
from lstm_ir.ir.input_file import reading
from lstm_ir.ir.printable import is_text
from lstm_ir.ir.types import DType, TensorType

_NAMES = {
    "F16": DType.f16, "BF16": DType.bf16, "F32": DType.f32, "F64": DType.f64, "I8": DType.i8, "U8": DType.u8,
    "I32": DType.i32, "U32": DType.u32, "I64": DType.i64, "BOOL": DType.i1,
}  # fmt: skip
_WORDS = {v: k for k, v in _NAMES.items()}
_METADATA = "__metadata__"
_HEADER = 16 << 20  # bytes; as Python's objects they take some twenty times that

Kind = tuple[DType, tuple[int, ...]]  # element type and shape


def read(path: object) -> dict[str, Array]:
    """Every array of the file, by name; PackageError for anything else."""
    with reading(path, "a safetensors file") as (f, size):
        return read_from(f, size, str(path))


def read_with_metadata(path: object) -> tuple[dict[str, Array], dict[str, str]]:
    """Every array of the file, and its metadata: texts by name."""
    with reading(path, "a safetensors file") as (f, size):
        return _read(f, size, str(path))


def read_from(f: BinaryIO, size: int, where: str) -> dict[str, Array]:
    """The arrays of the `size` bytes that follow in `f`."""
    return _read(f, size, where)[0]


def _read(f: BinaryIO, size: int, where: str) -> tuple[dict[str, Array], dict[str, str]]:
    types, spans, metadata = _header(f, size, where)
    out: dict[str, Array] = {}
    for name in sorted(spans, key=lambda n: spans[n]):  # the file's order
        dtype, shape = types[name]
        a = out[name] = fill(empty(shape, dtype.numpy), f, f"{where}: {name}")
        _confirm(a, dtype, f"{where}: {name}")
    return {name: out[name] for name in types}, metadata


def most_bytes(types: Iterable[TensorType]) -> int:
    """Of a file with an array of each of these types, an axis with a named size as long as 1."""
    arrays = (t.dtype.bytes * prod(d if isinstance(d, int) else 1 for d in t.shape) for t in types)
    return 8 + _HEADER + sum(arrays)


def views(memory: mmap.mmap | Array, start: int, size: int, where: str) -> dict[str, Array]:
    """The arrays of the `size` bytes from `start`, read-only, as they lie in a mapped file or an array of bytes.

    An array whose place is not aligned for the runtime is copied; `write` puts those last that push others out of
    their places.
    """
    length = min(int.from_bytes(bytes(memory[start : start + 8]), "little"), _HEADER) if size >= 8 else 0
    head = bytes(memory[start : start + min(8 + length, size)])
    types, spans, _ = _header(io.BytesIO(head), size, where)
    data = start + 8 + length
    out: dict[str, Array] = {}
    for name, (dtype, shape) in types.items():
        place, end = (data + n for n in spans[name])
        count = (end - place) // dtype.numpy.itemsize
        a = np.frombuffer(memory, dtype.numpy, count, place).reshape(shape) if count else empty(shape, dtype.numpy)
        if a.ctypes.data % ALIGNMENT:
            copy = empty(shape, dtype.numpy)
            copy[...] = a
            a = copy
        _confirm(a, dtype, f"{where}: {name}")
        a.flags.writeable = False
        out[name] = a
    return out


def _confirm(a: Array, dtype: DType, where: str) -> None:
    if dtype is DType.i1 and a.size and int(bytes_of(a).max()) > 1:
        raise PackageError(f"{where}: a boolean that is neither 0 nor 1")


def _header(f: BinaryIO, size: int, where: str) -> tuple[dict[str, Kind], dict[str, tuple[int, int]], dict[str, str]]:
    length = int.from_bytes(f.read(8), "little") if size >= 8 else 0
    if not 2 <= length <= min(size - 8, _HEADER):
        raise PackageError(f"{where}: not a safetensors file, or one that is cut off")
    data = strict_json.read(f.read(length), f"{where}: a damaged header")
    metadata = data.pop(_METADATA, {})
    metadata = {} if metadata is None else metadata
    if not (isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())):
        raise PackageError(f"{where}: {_METADATA} is not texts by name")
    if len(data) > ARRAYS:
        raise PackageError(f"{where}: {len(data)} tensors; at most {ARRAYS} are read")
    types: dict[str, Kind] = {}
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
    return types, spans, metadata


def _entry(entry: object, where: str) -> tuple[Kind, tuple[int, int]]:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise PackageError(f"{where}: expected dtype, shape and data_offsets")
    shape, span = entry["shape"], entry["data_offsets"]
    for numbers in (shape, span):
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise PackageError(f"{where}: expected lists of sizes")
    word = entry["dtype"]
    if not isinstance(word, str) or word not in _NAMES:
        raise PackageError(f"{where}: element type {str(word)[:20]!r}")
    dtype = _NAMES[word]
    count = size_of(shape, dtype.bytes, where)
    if len(span) != 2 or span[1] - span[0] != count:
        raise PackageError(f"{where}: {dtype}{shape} takes {count} bytes, data_offsets is {str(span)[:80]}")
    return (dtype, tuple(shape)), (span[0], span[1])


def _check(weights: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    if _METADATA in weights:
        raise PackageError(f"a safetensors file has no array called {_METADATA}, which is its metadata: rename it")
    if len(weights) > ARRAYS:
        raise PackageError(f"{len(weights)} arrays; at most {ARRAYS} are read again")
    for text in (*weights, *metadata, *metadata.values()):
        if not is_text(text):
            raise PackageError(f"{text!r:.80} has half of a surrogate pair: no file has such a name or text")
    for name, a in weights.items():
        size_of(a.shape, a.itemsize, name[:80])


def write(f: BinaryIO, weights: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> None:
    """`weights` as safetensors, the data starting at a multiple of 64 bytes; metadata are texts by name.

    Arrays whose bytes are a multiple of that come first, so that each of them can be mapped where it lies.
    PackageError for what `read` would not read again; then nothing is written.
    """
    _check(weights, metadata or {})
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    header |= {name: {} for name in weights}
    places = sorted(weights, key=lambda n: weights[n].nbytes % ALIGNMENT != 0)
    end = 0
    for name in places:
        a = weights[name]
        word = _WORDS[DType.of(a.dtype)]
        header[name] |= {"dtype": word, "shape": list(a.shape), "data_offsets": [end, end + a.nbytes]}
        end += a.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    if len(text) > _HEADER:
        raise PackageError(f"the header has {len(text)} bytes, with all names; at most {_HEADER} are read again")
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    f.write(len(text).to_bytes(8, "little"))
    f.write(text)
    for name in places:
        f.write(bytes_of(np.require(weights[name], requirements="C")).data)

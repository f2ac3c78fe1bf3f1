"""A checkpoint of TensorFlow: `NAME.index`, a sorted table, and the elements in `NAME.data-00000-of-00001`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.tensorflow.checksum import masked_crc32c
from lstm_ir.importers.tensorflow.messages import parsed
from lstm_ir.importers.tensorflow.sorted_table import MAX_BYTES, entries, table, varint
from lstm_ir.importers.tensorflow.tensors import STRING, dtype_of, of_bytes, shape_of
from lstm_ir.ir.data import Data
from lstm_ir.ir.errors import ModelError
from lstm_ir.ir.input_file import content, reading
from lstm_ir.ir.output_file import replacing

Array = np.ndarray[Any, Any]
OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
ATTRIBUTE = "/.ATTRIBUTES/VARIABLE_VALUE"
MAX_SHARDS = 100_000
_HEADER = b""  # the key of what the index says of the whole checkpoint


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies: its element type's number, shape, file, place, bytes and checksum."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    sliced: bool


class Bundle:
    """A checkpoint that was opened. `names` are the keys of its tensors."""

    def __init__(self, prefix: Path) -> None:
        self.file, self._prefix = f"{prefix.name}.index", prefix
        path = prefix.with_name(self.file)
        index = entries(content(path, "the index of a checkpoint", MAX_BYTES, ModelError), self.file)
        self._index = index
        header = parsed("BundleHeaderProto", index.get(_HEADER, b""), self.file, "the index of a checkpoint")
        self.shards = int(header.num_shards)
        if header.endianness:
            raise ModelError(f"{self.file}: the checkpoint was written on a big-endian machine, which is not taken")
        if not 1 <= self.shards <= MAX_SHARDS:
            raise ModelError(f"{self.file}: the checkpoint has {self.shards} data files")
        self._stored = {self._name(k): self._entry(k, value) for k, value in index.items() if k != _HEADER}
        self._maps: dict[int, Any] = {}
        self._read: dict[str, Data] = {}

    @property
    def names(self) -> list[str]:
        """The keys of all tensors."""
        return list(self._stored)

    @property
    def size(self) -> int:
        """Bytes of the index and of the data."""
        files = [self._prefix.with_name(self.file), *(self._shard(k) for k in range(self.shards))]
        return sum(os.path.getsize(p) for p in files if p.is_file())

    def __contains__(self, key: object) -> bool:
        return key in self._stored

    def stored(self, key: str) -> StoredTensor:
        """Where the tensor of a key lies. RefusedError where there is none, and where it is stored in parts."""
        entry = self._stored.get(key)
        if entry is None:
            raise NodeRefusedError(f"the checkpoint {self.file} has no tensor {key!r}")
        if entry.sliced:
            raise NodeRefusedError(f"the tensor {key!r} is stored in parts, which is not taken")
        return entry

    def data(self, key: str) -> Data:
        """The tensor of a key. RefusedError where there is none, or where it is damaged."""
        if key not in self._read:
            entry = self.stored(key)
            dtype = dtype_of(entry.dtype)
            if prod(entry.shape) * dtype.bytes != entry.size:
                raise NodeRefusedError(f"the tensor {key!r} {list(entry.shape)} of {dtype} has {entry.size} bytes")
            self._read[key] = of_bytes(self._content(key, entry), dtype, entry.shape)
        return self._read[key]

    def write(self, prefix: Path, arrays: Mapping[str, Array]) -> None:
        """A checkpoint with other values of these keys, of the same shapes and dtypes, and one data file.

        Both files come into being whole, the index at the end. OSError where they cannot be written.
        """
        index = dict(self._index)
        header = parsed("BundleHeaderProto", index[_HEADER], self.file, "the index of a checkpoint")
        header.num_shards, at = 1, 0
        index[_HEADER] = header.SerializeToString()
        with replacing(_shard(prefix, 0, 1)) as file:
            for key, entry in self._stored.items():
                raw = _as_bytes(arrays[key]) if key in arrays else self._raw(entry)
                file.write(raw)
                name = key.encode()
                changed = parsed("BundleEntryProto", index[name], self.file, "the index of a checkpoint")
                changed.shard_id, changed.offset = 0, at
                if key in arrays:
                    changed.crc32c = masked_crc32c(raw)
                index[name] = changed.SerializeToString()
                at += len(raw)
        with replacing(prefix.with_name(f"{prefix.name}.index")) as file:
            file.write(table(index))

    def objects(self) -> list[tuple[str, str]]:
        """Names of variables, each with a key of its tensor, as a checkpoint of objects lists them."""
        entry = self._stored.get(OBJECTS)
        if entry is None or entry.dtype != STRING or entry.shape != ():
            return []
        try:
            content = bytes(self._raw(entry))
            length, at = varint(content, 0)
        except (IndexError, ValueError, NodeRefusedError) as e:
            raise ModelError(f"{self.file}: the list of objects is damaged: {e}") from e
        graph = parsed("TrackableObjectGraph", content[at + 4 : at + 4 + length], self.file, "a checkpoint of objects")
        return [(a.full_name, a.checkpoint_key) for n in graph.nodes for a in n.attributes if a.full_name]

    def _content(self, key: str, entry: StoredTensor) -> Any:
        raw = self._raw(entry)
        if masked_crc32c(raw) != entry.checksum:
            raise NodeRefusedError(f"the checksum of the tensor {key!r} is wrong: the data file is damaged")
        return raw

    def _raw(self, entry: StoredTensor) -> Any:
        if entry.size == 0:
            return b""
        if entry.shard not in self._maps:
            path = self._shard(entry.shard)
            try:
                with reading(path, "the data of a checkpoint", ModelError, path.name) as (f, _):
                    self._maps[entry.shard] = np.memmap(f, np.uint8, "r")
            except ModelError as e:
                raise NodeRefusedError(str(e)) from e
        found = self._maps[entry.shard][entry.offset : entry.offset + entry.size]
        if len(found) != entry.size:
            raise NodeRefusedError(f"{self._shard(entry.shard).name} ends before a tensor does")
        return found

    def _shard(self, number: int) -> Path:
        return _shard(self._prefix, number, self.shards)

    def _name(self, key: bytes) -> str:
        try:
            return key.decode()
        except UnicodeDecodeError as e:
            raise ModelError(f"{self.file}: the key {key!r:.80} is not text") from e

    def _entry(self, key: bytes, value: bytes) -> StoredTensor:
        e = parsed("BundleEntryProto", value, self.file, "the index of a checkpoint")
        shape = shape_of(e.shape)
        name = self._name(key)
        if shape is None or None in shape:
            raise ModelError(f"{self.file}: the tensor {name!r} has no whole shape")
        if not 0 <= e.shard_id < self.shards or e.offset < 0 or e.size < 0:
            raise ModelError(f"{self.file}: the tensor {name!r} has no place in the data files")
        sizes = tuple(d for d in shape if d is not None)
        return StoredTensor(e.dtype, sizes, e.shard_id, e.offset, e.size, e.crc32c, bool(e.slices))


def _as_bytes(array: Array) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _shard(prefix: Path, number: int, shards: int) -> Path:
    # The name is made of numbers alone: nothing that a file says can lead out of its folder.
    return prefix.with_name(f"{prefix.name}.data-{number:05d}-of-{shards:05d}")


def opened(checkpoint: str | os.PathLike[str]) -> Bundle:
    """The checkpoint of a prefix (`model.ckpt-100`), of its index file, or the only one in a folder."""
    return Bundle(prefix_of(checkpoint))


def prefix_of(checkpoint: str | os.PathLike[str]) -> Path:
    """What stands before `.index` of a checkpoint."""
    path = Path(checkpoint)
    if path.is_dir():
        index_files = sorted(path.glob("*.index"))
        if len(index_files) != 1:
            raise ModelError(
                f"{path.name}: the folder has {len(index_files)} checkpoints; name one by what stands before .index"
            )
        path = index_files[0]
    if path.suffix == ".index":
        path = path.with_suffix("")
    return path

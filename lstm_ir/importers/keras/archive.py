"""`.keras` files, which may come from anybody: zips of a config, metadata and weights, with Keras' limits."""

from __future__ import annotations

import io
import json
import math
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lstm_ir.importers.keras.hdf5 import read_hdf5
from lstm_ir.importers.keras.weights import Array
from lstm_ir.ir.errors import LstmIrError, ModelError
from lstm_ir.ir.input_file import reading

CONFIG, METADATA, H5, NPZ = "config.json", "metadata.json", "model.weights.h5", "model.weights.npz"
MAX_TEXT = 16 << 20  # bytes of the config
MAX_DEPTH = 160  # lists and objects of JSON in one another: 32 models in models have 128
MAX_BYTES = 4 << 30  # that all members inflate to
MAX_EXPANSION = 100  # times the bytes that a member has in the file
MAX_MEMBERS = 10_000
_HOW = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True)
class ArchiveContents:
    """What a file holds: the config, the metadata, and arrays by their paths."""

    config: Any
    metadata: Mapping[str, Any]
    arrays: Mapping[str, Array]


def read_archive(path: Path) -> ArchiveContents:
    """The file; ModelError for what is damaged, inflates too much, or reaches outside."""
    file = path.name
    with reading(path, "a .keras file", ModelError) as (f, _), zipfile.ZipFile(f) as archive:
        members = _members(archive, file)
        config = parsed(_text(archive, members, CONFIG, file), f"{file}: {CONFIG}")
        metadata = parsed(_text(archive, members, METADATA, file), f"{file}: {METADATA}") if METADATA in members else {}
        if not isinstance(config, Mapping) or not isinstance(metadata, Mapping):
            raise ModelError(f"{file}: {CONFIG} or {METADATA} is no object of JSON")
        if H5 in members:
            arrays = _h5(archive, members[H5], file)
        elif NPZ in members:
            arrays = _npz(archive, members[NPZ], file)
        else:
            shards = [n for n in members if n.endswith(".weights.json")]
            what = "weights in several files, which are not taken" if shards else f"neither {H5} nor {NPZ}"
            raise ModelError(f"{file}: it has {what}")
    return ArchiveContents(config, metadata, arrays)


def parsed(data: bytes | str, where: str) -> Any:
    """JSON; ModelError for other text, and for what is too long or nested too deeply."""
    if len(data) > MAX_TEXT:
        raise ModelError(f"{where} has {len(data)} bytes; at most {MAX_TEXT} are read")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise ModelError(f"{where}: not JSON: {str(e)[:200]}") from None
    inner, depth = [found] if isinstance(found, (dict, list)) else [], 0
    while inner:
        inner = [v for t in inner for v in (t.values() if isinstance(t, dict) else t) if isinstance(v, (dict, list))]
        depth += 1
        if depth > MAX_DEPTH:
            raise ModelError(f"{where}: lists and objects are nested deeper than {MAX_DEPTH}")
    return found


def _members(archive: zipfile.ZipFile, file: str) -> dict[str, zipfile.ZipInfo]:
    """By name; names that lead out, stand twice or inflate too much are refused."""
    infos = archive.infolist()
    if len(infos) > MAX_MEMBERS:
        raise ModelError(f"{file}: {len(infos)} members; at most {MAX_MEMBERS} are read")
    out: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = info.filename
        if name.startswith(("/", "\\")) or ".." in Path(name).parts or ":" in name or name in out:
            raise ModelError(f"{file}: the member {name!r:.80} has a name that leads outside, or stands twice")
        if info.compress_type not in _HOW or info.flag_bits & 1:
            raise ModelError(f"{file}: {name} is packed or locked in a way that is not read")
        check_expansion(info, f"{file}: {name}")
        out[name] = info
    total = sum(i.file_size for i in infos)
    if total > MAX_BYTES:
        raise ModelError(f"{file}: its members inflate to {total} bytes; at most {MAX_BYTES} are read")
    return out


def check_expansion(info: zipfile.ZipInfo, where: str) -> None:
    """Refuse a member that inflates to more than a hundred times what it is in the file."""
    if info.file_size > MAX_EXPANSION * max(info.compress_size, 1) and info.file_size > 1 << 16:
        raise ModelError(
            f"{where}: {info.compress_size} bytes that inflate to {info.file_size}; at most {MAX_EXPANSION} times"
        )


def _text(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], name: str, file: str) -> bytes:
    if name not in members:
        raise ModelError(f"{file}: it has no {name}: not a .keras file")
    if members[name].file_size > MAX_TEXT:
        raise ModelError(f"{file}: {name} has {members[name].file_size} bytes; at most {MAX_TEXT} are read")
    with archive.open(name) as f:
        return f.read(MAX_TEXT)


def _h5(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: str) -> dict[str, Array]:
    """The member in a file of its own, for the process that reads it."""
    with tempfile.TemporaryDirectory(prefix="lstm-ir-") as folder:
        path = Path(folder) / H5
        with archive.open(info) as f, path.open("wb") as out:
            while block := f.read(1 << 20):
                out.write(block)
        return read_hdf5(path, f"{file}: {H5}")[0]


def _npz(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file: str) -> dict[str, Array]:
    """The arrays of the other form. Keras itself writes pickles there, which are refused, as Keras' own reader does."""
    where = f"{file}: {NPZ}"
    out: dict[str, Array] = {}
    with archive.open(info) as f:
        data = io.BytesIO(f.read(info.file_size))
    try:
        with zipfile.ZipFile(data) as inner:
            found = inner.infolist()
            if len(found) > MAX_MEMBERS or sum(m.file_size for m in found) > MAX_BYTES:
                raise ModelError(f"{where}: it has more than {MAX_MEMBERS} members or {MAX_BYTES} bytes")
            for member in found:
                name = member.filename.removesuffix(".npy")
                check_expansion(member, f"{where}: {name!r:.80}")
                if member.compress_type not in _HOW or name in out:
                    raise ModelError(f"{where}: {name!r:.80} is packed in a way that is not read, or stands twice")
                out[name] = _array(inner, member, f"{where}: {name!r:.80}")
    except LstmIrError:
        raise
    except Exception as e:  # whatever a damaged file makes NumPy raise
        raise ModelError(f"{where}: {str(e)[:200]}") from e
    return out


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> Array:
    """One array, for which no memory is taken before its header agrees with how long it is."""
    with archive.open(member) as f:
        version = np.lib.format.read_magic(f)
        read_header: Any = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in read_header:
            raise ModelError(f"{where}: .npy of version {version}")
        shape, _, dtype = read_header[version](f)
        if dtype.hasobject:
            raise ModelError(f"{where}: a pickle, which may run code: save the model again with h5py installed")
        if math.prod(shape) * dtype.itemsize != member.file_size - f.tell():
            raise ModelError(f"{where}: its header claims {dtype}{list(shape)}, and it has {member.file_size} bytes")
    with archive.open(member) as f:
        return np.asarray(np.lib.format.read_array(f, allow_pickle=False))

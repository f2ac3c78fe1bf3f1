"""`.lirpkg`: one file with a program's modules, for one or several targets, and its weights.

A zip whose members are stored, not packed: manifest.json, weights.safetensors, module-N.vmfb; of a program with
state state.safetensors; of a package that may be compiled again graph.lir, and constants.safetensors where the text
names arrays; of a signed package manifest.hmac. The manifest holds the SHA-256 of every other member.
"""

from __future__ import annotations

import io
import json
import mmap
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from lstm_ir.backends.files import parameters, safetensors, strict_json, zips
from lstm_ir.backends.files.digest import sha256
from lstm_ir.backends.files.manifest import Manifest, PackageFile, PackedTarget
from lstm_ir.backends.files.packed_graph import TEXT_LIMIT, PackedGraph
from lstm_ir.backends.memory import ALIGNMENT
from lstm_ir.backends.targets.target import Target
from lstm_ir.ir.errors import KeyTypeError, LstmIrError, PackageError
from lstm_ir.ir.foreign_errors import become, refusals_become
from lstm_ir.ir.input_file import reading
from lstm_ir.ir.output_file import replacing
from lstm_ir.ir.signature import Signature
from lstm_ir.ir.work import CallWork

Array = np.ndarray[Any, Any]
MANIFEST, WEIGHTS, SEAL = "manifest.json", "weights.safetensors", "manifest.hmac"
STATE = "state.safetensors"  # only of a program with state
GRAPH, CONSTANTS = "graph.lir", "constants.safetensors"
MEMBERS = (MANIFEST, SEAL, WEIGHTS, STATE, CONSTANTS, GRAPH)  # beside modules
_MODULES = 1000  # module-0 to module-999
_LISTED = 1024  # bytes of a member in the archive's list, more than any tool writes
_LIMIT = 16 << 20  # bytes of the manifest
_HEADER, _ZIP64 = 30, 20  # bytes of a member's header before its name, and of what a long member's header has besides
_AFRESH = "Copy or download it again, and compare its size with the original's"
_PADDING, _ALIGNED = struct.Struct("<HHH"), 0xD935  # the record of Android's tools: its kind, size and alignment


class ModuleFile(NamedTuple):
    """A compiled module, the target it is for, and what its entries compute."""

    target: Target
    blob: bytes
    work: Mapping[str, CallWork] = MappingProxyType({})


class Package(NamedTuple):
    """What a package holds, read and checked."""

    path: Path
    manifest: Manifest
    blobs: dict[str, bytes]  # modules and the graph's members, by name
    weights: dict[str, Array]
    state: dict[str, Array]  # what each variable starts as
    signed: bool  # with the key that was required
    sealed: bool  # there is a signature, whoever made it

    @property
    def signature(self) -> Signature:
        """The program's."""
        return self.manifest.signature

    @property
    def targets(self) -> tuple[PackedTarget, ...]:
        """In the order in which they were exported."""
        return self.manifest.targets

    @property
    def extra(self) -> dict[str, Any]:
        """What the writer put beside the program."""
        return self.manifest.extra

    @property
    def digest(self) -> str:
        """One hash of all members; packages of one digest run alike."""
        members = sorted((name, m.sha256) for name, m in self.manifest.members.items())
        return sha256(repr(members).encode())

    @property
    def graph(self) -> PackedGraph | None:
        """What the package was made of; None where its writer left that out."""
        recipe = self.manifest.recipe
        if recipe is None:
            return None
        try:
            text = self.blobs[GRAPH].decode("utf-8")
        except UnicodeDecodeError as e:
            raise PackageError(f"{self.path}: {GRAPH}: not UTF-8 text: byte {e.start}") from None
        return PackedGraph(text, _unpacked(self.blobs, CONSTANTS, self.path), recipe)


def write_package(
    path: str | Path,
    signature: Signature,
    modules: Mapping[str, ModuleFile | tuple[Target, bytes]],
    weights: Mapping[str, Any],
    extra: Mapping[str, Any] | None = None,
    *,
    sign_key: bytes | str | None = None,
    state: Mapping[str, Array] | None = None,
    graph: PackedGraph | None = None,
) -> None:
    """Write the package in one step: after a failure the old file, or none, is there.

    A module that comes without what its entries compute runs on IREE's workers. A package without `graph` cannot
    be compiled again.
    """
    from lstm_ir.backends.compile.compiler import versions  # of writers alone

    if not modules:
        raise PackageError("a package needs at least one target")
    key = _key(sign_key)
    members = _data(signature, weights, {} if state is None else state, graph)
    targets = []
    for i, made in enumerate(modules.values()):
        target, blob, work = made if isinstance(made, ModuleFile) else ModuleFile(*made)
        file = f"module-{i}.vmfb"
        members[file] = blob
        targets.append(PackedTarget.of(target.info, file, work))
    manifest = Manifest(
        lstm_ir=versions()[1],
        iree=versions()[0],
        signature=signature,
        targets=tuple(targets),
        members={n: PackageFile(len(b), sha256(b)) for n, b in members.items()},
        extra=dict({} if extra is None else extra),
        recipe=None if graph is None else graph.recipe,
    )
    text = json.dumps(manifest.to_json(), indent=1, sort_keys=True).encode()
    if len(text) > _LIMIT:
        raise PackageError(f"the manifest has {len(text)} bytes, with all names; at most {_LIMIT} are read again")
    members = {MANIFEST: text, **members}
    if key is not None:
        members[SEAL] = _seal(key, text)
    _write(Path(path), members)


def _data(
    signature: Signature, weights: Mapping[str, Any], state: Mapping[str, Array], graph: PackedGraph | None
) -> dict[str, bytes]:
    """What all modules of a package share: weights, initial state, the graph."""
    members = {WEIGHTS: _packed(parameters.check(weights, signature.weights))}
    if set(state) != set(signature.state):
        odd = min(set(state) ^ set(signature.state))
        raise PackageError(f"state {odd!r} has no initial value, or is not in the signature")
    if state:
        members[STATE] = _packed(state)
    if graph is not None:
        members[GRAPH] = graph.text.encode()
        if graph.constants:
            members[CONSTANTS] = _packed(graph.constants)
    return members


def _packed(arrays: Mapping[str, Array]) -> bytes:
    out = io.BytesIO()
    safetensors.write(out, arrays)
    return out.getvalue()


def _key(key: bytes | str | None) -> bytes | None:
    if key is None:
        return None
    if not isinstance(key, (str, bytes)):
        name = type(key).__name__
        raise KeyTypeError(f"the key of a signature is a{'n' * (name[0] in 'aeiou')} {name}; expected text or bytes")
    with become(PackageError, "the key of a signature"):
        data = key.encode() if isinstance(key, str) else key
    if not data:
        raise PackageError("the key of a signature is empty")
    return data


def _write(path: Path, members: Mapping[str, bytes]) -> None:
    with become(PackageError, str(path)), replacing(path) as f, zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as archive:
        start = 0
        for name, data in members.items():
            info = zipfile.ZipInfo(name)  # 1980: equal input, equal file
            long = len(data) * 1.05 > zipfile.ZIP64_LIMIT  # as zipfile asks; then its header is longer
            head = start + _HEADER + len(name) + (_ZIP64 if long else 0)
            info.extra = _padding(head)
            archive.writestr(info, data)
            start = head + len(info.extra) + len(data)


def _padding(head: int) -> bytes:
    """What a member's header ends with, so that its data begins at a multiple of 64 bytes."""
    zeros = -(head + _PADDING.size) % ALIGNMENT
    return _PADDING.pack(_ALIGNED, 2 + zeros, ALIGNMENT) + bytes(zeros)


def read_package(path: str | Path, *, require_key: bytes | str | None = None, mapped: bool = False) -> Package:
    """Everything in the package, each member checked against the manifest before it is used.

    mapped: weights are read-only arrays in the file, mapped; whoever writes into that file changes them.
    """
    key = _key(require_key)
    with reading(path, "a package") as (f, size), _opened(f, size, file := Path(path)) as archive:
        infos = _members(archive, size, file)
        text = archive.read(MANIFEST)
        if key is not None:
            _unseal(archive, infos, text, key, file)
        manifest = _manifest(text, file)
        _same_members(infos, manifest, file)
        data = {n: archive.read(n) for n in manifest.members if not (mapped and n == WEIGHTS)}
        for name, content in data.items():
            _same_content(content, name, manifest, file)
        weights = _mapped(f, infos[WEIGHTS], manifest, file) if mapped else _unpacked(data, WEIGHTS, file)
        state = _unpacked(data, STATE, file)
        kept = {n: d for n, d in data.items() if n not in (WEIGHTS, STATE)}
        return Package(file, manifest, kept, weights, state, key is not None, SEAL in infos)


def _opened(f: BinaryIO, size: int, file: Path) -> zipfile.ZipFile:
    """The archive; PackageError for one whose end, where the list of its members stands, is gone.

    Modules are zip archives too: in a package that was cut off, the list of the last whole one is found.
    """
    if size == 0:
        raise PackageError(f"{file}: the file is empty. {_AFRESH}")
    head = f.read(_HEADER + len(MANIFEST))
    begun = head.startswith(b"PK\3\4") and head[_HEADER:] == MANIFEST.encode()
    try:
        archive = zips.opened(f, size, (len(MEMBERS) + _MODULES) * _LISTED, str(file))
    except zipfile.BadZipFile:
        if not begun:
            raise
    else:
        if not begun or MANIFEST in archive.namelist():
            return archive
    raise PackageError(
        f"{file}: the package is cut off or damaged: after {size} bytes its list of members is missing. {_AFRESH}"
    )


def _same_content(data: bytes | memoryview, member: str, manifest: Manifest, file: Path) -> None:
    if sha256(data) != manifest.members[member].sha256:
        raise PackageError(f"{file}: {member} is not the file that the manifest describes")


def _mapped(f: BinaryIO, info: zipfile.ZipInfo, manifest: Manifest, file: Path) -> dict[str, Array]:
    """The weights where they lie in the file. Its other members were read before."""
    whole = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    head = whole[info.header_offset : info.header_offset + _HEADER]
    start = info.header_offset + _HEADER + sum(struct.unpack("<HH", head[26:30]))
    end = start + info.file_size
    if end > len(whole):
        raise PackageError(f"{file}: {info.filename} is cut off")
    with memoryview(whole) as view, view[start:end] as content:
        _same_content(content, info.filename, manifest, file)
    return safetensors.views(whole, start, info.file_size, f"{file}: {info.filename}")


def _unpacked(data: Mapping[str, bytes], member: str, file: Path) -> dict[str, Array]:
    packed = data.get(member)
    if packed is None:
        return {}
    return safetensors.read_from(io.BytesIO(packed), len(packed), f"{file}: {member}")


def is_module(member: str) -> bool:
    """Whether it is module-0.vmfb to module-999.vmfb."""
    number = member[len("module-") : -len(".vmfb")]
    named = member == f"module-{number}.vmfb" and number.isascii() and number.isdigit()
    return named and len(number) <= 3 and number == str(int(number))


def _members(archive: zipfile.ZipFile, size: int, file: Path) -> dict[str, zipfile.ZipInfo]:
    """The members by name; sizes are bounded by the file itself, since nothing is packed."""
    out: dict[str, zipfile.ZipInfo] = {}
    total = size
    for info in archive.infolist():
        name = info.filename
        if name not in MEMBERS and not is_module(name):
            raise PackageError(f"{file}: a package has no member {name[:80]!r}")
        if name in out:
            raise PackageError(f"{file}: two members are called {name}")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise PackageError(f"{file}: {name} is packed; a package's members are stored")
        total -= info.file_size
        if total < 0 or (name in (MANIFEST, SEAL) and info.file_size > _LIMIT):
            raise PackageError(f"{file}: {name} claims {info.file_size} bytes")
        out[name] = info
    if MANIFEST not in out:
        raise PackageError(f"{file}: not a package: it has no {MANIFEST}")
    return out


def _seal(key: bytes, text: bytes) -> bytes:
    with refusals_become(PackageError, "the signature"):  # an import opens files
        import hmac  # slow: hashlib comes with it
    return hmac.new(key, text, "sha256").hexdigest().encode()


def _unseal(archive: zipfile.ZipFile, infos: Mapping[str, object], text: bytes, key: bytes, file: Path) -> None:
    if SEAL not in infos:
        raise PackageError(f"{file}: a signature is required, and the package has none")
    from hmac import compare_digest  # slow: hashlib comes with it

    if not compare_digest(_seal(key, text), archive.read(SEAL)):
        raise PackageError(f"{file}: the signature was not made with this key for this package")


def _manifest(text: bytes, file: Path) -> Manifest:
    data = strict_json.read(text, f"{file}: a damaged manifest")
    try:
        return Manifest.from_json(data)
    except LstmIrError as e:
        raise PackageError(f"{file}: {e}") from e


def _same_sizes(manifest: Manifest, file: Path) -> None:
    """That no member is longer than what the program says can be in it: it would be read whole."""
    signature = manifest.signature
    most = {
        WEIGHTS: safetensors.most_bytes(signature.weights.values()),
        STATE: safetensors.most_bytes(v.type for v in signature.state.values()),
        GRAPH: TEXT_LIMIT,
    }
    for name, limit in most.items():
        if name in manifest.members and (size := manifest.members[name].size) > limit:
            raise PackageError(f"{file}: {name} has {size} bytes; what the program has there takes at most {limit}")


def _same_members(infos: Mapping[str, zipfile.ZipInfo], manifest: Manifest, file: Path) -> None:
    listed, here = set(manifest.members), set(infos) - {MANIFEST, SEAL}
    if listed != here:
        raise PackageError(f"{file}: {min(listed ^ here)} is listed or present, not both")
    for name, member in manifest.members.items():
        if infos[name].file_size != member.size:
            size = infos[name].file_size
            raise PackageError(f"{file}: {name} has {size} bytes, not {member.size}")
    _same_sizes(manifest, file)
    for target in manifest.targets:
        if target.file not in listed or not is_module(target.file):
            raise PackageError(f"{file}: target {target.info.name} has no module")
    if WEIGHTS not in listed:
        raise PackageError(f"{file}: no {WEIGHTS}")
    if (GRAPH in listed) != (manifest.recipe is not None) or (CONSTANTS in listed and GRAPH not in listed):
        raise PackageError(f"{file}: {GRAPH} is present, or what the manifest says of it, not both")

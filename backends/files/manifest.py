"""A package's manifest as data, and its JSON: strict, since the file comes from somewhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lstm_ir.backends.files.packed_graph import Recipe
from lstm_ir.backends.targets import cpus
from lstm_ir.ir.errors import PackageError
from lstm_ir.ir.signature import Signature
from lstm_ir.ir.signature_json import dump, load, load_dim, shown_dim
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.work import CallWork

FORMAT = 4  # 2: state, and what it starts as; 3: what entries compute, by target; 4: the graph that it was made of
_READ = (2, 3, 4)
_ENTRIES = 100_000  # of a program
_KINDS = ("cpu", "vulkan", "cuda", "hip", "metal")


class PackageFile(NamedTuple):
    """Size and SHA-256 (hex) of one file of the package."""

    size: int
    sha256: str


class PackedTarget(NamedTuple):
    """A target in a package: where its module is, and what a machine must have to run it."""

    info: TargetInfo
    file: str
    features: tuple[str, ...]  # those whose absence would kill the process
    work: Mapping[str, CallWork]  # by entry; none in format 2

    @classmethod
    def of(cls, info: TargetInfo, file: str, work: Mapping[str, CallWork]) -> PackedTarget:
        """The target as it is recorded."""
        return cls(info, file, cpus.needed(info.features), work)

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        i = self.info
        return {
            "name": i.name, "kind": i.kind, "detail": i.detail, "triple": i.triple, "cpu": i.cpu,
            "features": list(self.features), "file": self.file,
            "work": {n: [shown_dim(w.operations), w.loops, w.published] for n, w in self.work.items()},
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: object, version: int) -> PackedTarget:
        """The target in `data`, of a manifest of this format."""
        names = ("name", "kind", "detail", "triple", "cpu", "features", "file")
        f = fields(data, "target", names if version < 3 else (*names, "work"))
        texts = [text(f[k], k) for k in ("name", "kind", "detail", "triple", "cpu", "file")]
        name, kind, detail, triple, cpu, file = texts
        if kind not in _KINDS or not isinstance(f["features"], list):
            raise PackageError(f"target {name[:40]!r}: kind {kind[:20]!r} or its features")
        features = tuple(text(x, "feature") for x in f["features"])
        info = TargetInfo(name, kind, detail, triple, cpu, features, kernels=kind == "cpu")
        return cls(info, file, features, _work(f["work"]) if version >= 3 else {})


class Manifest(NamedTuple):
    """Versions, signature, targets and the members that belong to them."""

    lstm_ir: str
    iree: str
    signature: Signature
    targets: tuple[PackedTarget, ...]
    members: dict[str, PackageFile]
    extra: dict[str, Any]
    recipe: Recipe | None = None  # how its graph was compiled; None where the graph is not in it
    version: int = FORMAT

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        r = self.recipe
        return {
            "format": FORMAT,
            "lstm_ir": self.lstm_ir,
            "iree": self.iree,
            "signature": dump(self.signature),
            "targets": [t.to_json() for t in self.targets],
            "members": {n: [m.size, m.sha256] for n, m in self.members.items()},
            "extra": self.extra,
            "graph": None if r is None else {"targets": list(r.targets), "options": dict(r.options)},
        }

    @classmethod
    def from_json(cls, data: object) -> Manifest:
        """The manifest in `data`; PackageError for anything that `to_json` does not write."""
        version = data.get("format") if isinstance(data, dict) else None
        if isinstance(data, dict) and (type(version) is not int or version not in _READ):
            old = type(version) is int and version < _READ[0]
            again = (
                ". Make it again of the graph's text and its weights: `lstm-ir compile GRAPH.lir --weights WEIGHTS.npz "
                "-o NEW.lirpkg`" if old else ". A newer lstm-ir reads it"
            )  # fmt: skip
            raise PackageError(f"format {str(version)[:20]}; this version reads {', '.join(map(str, _READ))}{again}")
        names = ("format", "lstm_ir", "iree", "signature", "targets", "members", "extra")
        version = _READ[0] if type(version) is not int else version
        f = fields(data, "manifest", names if version < 4 else (*names, "graph"))
        if not isinstance(f["targets"], list) or not f["targets"]:
            raise PackageError("manifest: no targets")
        if not isinstance(f["members"], dict) or not isinstance(f["extra"], dict):
            raise PackageError("manifest: members and extra are objects")
        return cls(
            text(f["lstm_ir"], "version"),
            text(f["iree"], "version"),
            load(f["signature"]),
            tuple(PackedTarget.from_json(t, f["format"]) for t in f["targets"]),
            {n: _member(n, m) for n, m in f["members"].items()},
            f["extra"],
            _recipe(f["graph"]) if version >= 4 else None,
            version,
        )


def _recipe(data: object) -> Recipe | None:
    if data is None:
        return None
    f = fields(data, "graph", ("targets", "options"))
    if not isinstance(f["targets"], list) or not f["targets"] or not isinstance(f["options"], dict):
        raise PackageError("graph: targets is a list, options an object")
    return Recipe(tuple(text(t, "target") for t in f["targets"]), f["options"])


def _member(name: str, data: object) -> PackageFile:
    if not (isinstance(data, list) and len(data) == 2 and type(data[0]) is int and data[0] >= 0):
        raise PackageError(f"member {name[:40]!r}: expected size and hash")
    digest = text(data[1], "hash")
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise PackageError(f"member {name[:40]!r}: not a SHA-256")
    return PackageFile(data[0], digest)


def _work(data: object) -> dict[str, CallWork]:
    if not isinstance(data, dict) or len(data) > _ENTRIES:
        raise PackageError("target: its work is an object")
    found = {}
    for entry, values in data.items():
        if not (isinstance(values, list) and len(values) == 3 and all(type(n) is int and n >= 0 for n in values[1:])):
            raise PackageError(f"target: the work of {entry[:40]!r}")
        operations = load_dim(values[0])
        if operations is None:
            raise PackageError(f"target: the operations of {entry[:40]!r}")
        found[entry] = CallWork(operations, *values[1:])
    return found


def fields(data: object, what: str, names: tuple[str, ...]) -> dict[str, Any]:
    """`data` as an object with exactly these fields."""
    if not isinstance(data, dict) or set(data) != set(names):
        raise PackageError(f"{what}: expected the fields {', '.join(names)}")
    return data


def text(data: object, what: str) -> str:
    """`data` as a text of bounded length."""
    if not isinstance(data, str) or len(data) > 4096:
        raise PackageError(f"{what}: expected a text")
    return data

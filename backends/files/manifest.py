"""A package's manifest as data, and its JSON: strict, since the file comes from somewhere else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from lstm_ir.backends.targets import cpus
from lstm_ir.ir.errors import PackageError
from lstm_ir.ir.signature import Signature
from lstm_ir.ir.target import TargetInfo

FORMAT = 2  # 2: state, and what it starts as
_KINDS = ("cpu", "vulkan", "cuda", "hip", "metal")


@dataclass(frozen=True)
class Member:
    """Size and SHA-256 (hex) of one file of the package."""

    size: int
    sha256: str


@dataclass(frozen=True)
class PackedTarget:
    """A target in a package: where its module is, and what a machine must have to run it."""

    info: TargetInfo
    file: str
    features: tuple[str, ...]  # those whose absence would kill the process

    @classmethod
    def of(cls, info: TargetInfo, file: str) -> PackedTarget:
        """The target as it is recorded."""
        return cls(info, file, cpus.needed(info.features))

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        i = self.info
        return {
            "name": i.name, "kind": i.kind, "detail": i.detail, "triple": i.triple, "cpu": i.cpu,
            "features": list(self.features), "file": self.file,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: object) -> PackedTarget:
        """The target in `data`."""
        f = fields(data, "target", ("name", "kind", "detail", "triple", "cpu", "features", "file"))
        texts = [text(f[k], k) for k in ("name", "kind", "detail", "triple", "cpu", "file")]
        name, kind, detail, triple, cpu, file = texts
        if kind not in _KINDS or not isinstance(f["features"], list):
            raise PackageError(f"target {name[:40]!r}: kind {kind[:20]!r} or its features")
        features = tuple(text(x, "feature") for x in f["features"])
        info = TargetInfo(name, kind, detail, triple, cpu, features, kernels=kind == "cpu")
        return cls(info, file, features)


@dataclass(frozen=True)
class Manifest:
    """Versions, signature, targets and the members that belong to them."""

    lstm_ir: str
    iree: str
    signature: Signature
    targets: tuple[PackedTarget, ...]
    members: dict[str, Member]
    extra: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "format": FORMAT,
            "lstm_ir": self.lstm_ir,
            "iree": self.iree,
            "signature": self.signature.to_json(),
            "targets": [t.to_json() for t in self.targets],
            "members": {n: [m.size, m.sha256] for n, m in self.members.items()},
            "extra": self.extra,
        }

    @classmethod
    def from_json(cls, data: object) -> Manifest:
        """The manifest in `data`; PackageError for anything that `to_json` does not write."""
        if isinstance(data, dict) and data.get("format") != FORMAT:
            found = str(data.get("format"))[:20]
            raise PackageError(f"format {found}; this version reads {FORMAT}")
        names = ("format", "lstm_ir", "iree", "signature", "targets", "members", "extra")
        f = fields(data, "manifest", names)
        if not isinstance(f["targets"], list) or not f["targets"]:
            raise PackageError("manifest: no targets")
        if not isinstance(f["members"], dict) or not isinstance(f["extra"], dict):
            raise PackageError("manifest: members and extra are objects")
        return cls(
            text(f["lstm_ir"], "version"),
            text(f["iree"], "version"),
            Signature.from_json(f["signature"]),
            tuple(PackedTarget.from_json(t) for t in f["targets"]),
            {n: _member(n, m) for n, m in f["members"].items()},
            f["extra"],
        )


def _member(name: str, data: object) -> Member:
    if not (isinstance(data, list) and len(data) == 2 and type(data[0]) is int and data[0] >= 0):
        raise PackageError(f"member {name[:40]!r}: expected size and hash")
    digest = text(data[1], "hash")
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise PackageError(f"member {name[:40]!r}: not a SHA-256")
    return Member(data[0], digest)


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

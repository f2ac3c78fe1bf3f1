"""Small packages, and their members and manifests changed as somebody who knows the format would."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from handmade import WEIGHTS, dtypes, module, signature

from lstm_ir.backends.run.devices import resolve
from lstm_ir.backends.run.package import ModuleFile, write_package


def packed(word: str) -> ModuleFile:
    """The handmade module for a target."""
    return ModuleFile(*module(word))


def small() -> Any:
    """The signature that every target's module has."""
    return signature(dtypes(resolve("vulkan")))


def written(folder: Path) -> Path:
    """A package with the module for this machine, in the folder."""
    file = folder / "m.lirpkg"
    write_package(file, small(), {"cpu": packed("cpu")}, WEIGHTS, {"report": "kernel"})
    return file


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as z:
        return {n: z.read(n) for n in z.namelist()}


def rezip(path: Path, files: list[tuple[str, bytes]], how: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", how) as z:
        for name, data in files:
            z.writestr(zipfile.ZipInfo(name), data, compress_type=how)


def rebuild(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest, as somebody who knows the format would."""
    files = members(path)
    data = json.loads(files["manifest.json"])
    change(data)
    files["manifest.json"] = json.dumps(data).encode()
    rezip(path, list(files.items()))

"""State files: what a session holds, as safetensors; written in one step, read with every bound checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lstm_ir.backends.files import safetensors
from lstm_ir.ir.errors import CallError, PackageError
from lstm_ir.ir.foreign_errors import become
from lstm_ir.ir.output_file import replacing

Array = np.ndarray[Any, Any]


def write(path: str | Path, arrays: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> None:
    """The arrays by name, and texts; after a failure the old file, or none, is there."""
    file = _file(path)
    with become(PackageError, str(file)), replacing(file) as f:
        safetensors.write(f, arrays, metadata)


def read(path: str | Path) -> dict[str, Array]:
    """The arrays of the file; PackageError if it is absent, damaged or cut off."""
    return safetensors.read(path)


def read_with_metadata(path: str | Path) -> tuple[dict[str, Array], dict[str, str]]:
    """As `read`, and the texts that `write` was given."""
    return safetensors.read_with_metadata(path)


def _file(path: object) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise PackageError(f"a state file's path is {path!r}, which is no path")
    return Path(path)


def need_place(path: object, what: str) -> Path:
    """The path of a file that is written later. CallError for no path, PackageError for a folder, or one in none."""
    if not isinstance(path, (str, Path)):
        raise CallError(f"{what} is {path!r:.80}; expected a path")
    file = Path(path)
    if file.is_dir() or not file.parent.is_dir():
        wrong = "is a folder" if file.is_dir() else "stands in no folder that there is"
        raise PackageError(f"{what} {file} {wrong}")
    return file

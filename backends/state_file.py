"""State files: what a session holds, as safetensors; written in one step, read with every bound checked."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from lstm_ir.backends import safetensors
from lstm_ir.errors import PackageError

Array = np.ndarray[Any, Any]


def write(path: str | Path, arrays: Mapping[str, Array]) -> None:
    """The arrays by name; after a failure the old file, or none, is there."""
    file = Path(path)
    temporary = file.with_name(f".{file.name[:100]}-{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as f:
            safetensors.write(f, arrays)
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, file)
    except OSError as e:
        raise PackageError(f"{file}: {e.strerror}") from e
    finally:
        with suppress(OSError):
            temporary.unlink()


def read(path: str | Path) -> dict[str, Array]:
    """The arrays of the file; PackageError if it is absent, damaged or cut off."""
    file = Path(path)
    try:
        return safetensors.read(file)
    except OSError as e:
        raise PackageError(f"{file}: {e.strerror or e}") from e

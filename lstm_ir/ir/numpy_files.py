"""Arrays written to NumPy's own files, under any names; what those files do not have is refused."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from lstm_ir.ir.errors import PackageError
from lstm_ir.ir.types import DType


def check(types: Mapping[str, np.dtype[Any]], where: str) -> None:
    """PackageError for bf16: the files have no word for it, and NumPy writes bytes that have no type any more."""
    for name, dtype in types.items():
        if dtype.kind == "V":
            raise PackageError(
                f"{where}: {name!r} is {DType.of(dtype)}, which .npz and .npy files do not have; .safetensors files do"
            )


def write_npz(f: BinaryIO, arrays: Mapping[str, np.ndarray[Any, Any]], where: str) -> None:
    """Every array under its name. `np.savez` has arguments `file` and `allow_pickle`, which can be no names."""
    check({name: a.dtype for name, a in arrays.items()}, where)
    with zipfile.ZipFile(f, "w") as archive:
        for name, a in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, a, allow_pickle=False)

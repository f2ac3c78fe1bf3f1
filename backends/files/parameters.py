"""Weights for the runtime: private copies, the provider that modules load from, files of weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lstm_ir.backends import bindings
from lstm_ir.backends.files import safetensors
from lstm_ir.backends.memory import ALIGNMENT, Array, bytes_of, empty
from lstm_ir.ir.errors import CallError, PackageError
from lstm_ir.ir.foreign_errors import refusals_become
from lstm_ir.ir.output_file import replacing
from lstm_ir.ir.types import TensorType

SCOPE = "model"  # #flow.parameter.named<"model"::"encoder/w_ih">


def key(name: str) -> str:
    """The name of a weight as a module's parameter has it: in hex where IREE would not print it so that it can be
    read again.
    """
    plain = name.isprintable() and not set(name) & {'"', "\\"} and not name.startswith("%")
    return name if plain else f"%{name.encode().hex()}"


def check(weights: Mapping[str, Any], types: Mapping[str, TensorType], *, keep: bool = False) -> dict[str, Array]:
    """Read-only aligned copies in the order of `types`; CallError for any that do not fit.

    keep: arrays that are read-only and aligned are taken as they are, since nobody else has them.
    """
    missing, extra = set(types) - set(weights), set(weights) - set(types)
    if missing or extra:
        word, which = ("missing", missing) if missing else ("unknown", extra)
        raise CallError(f"{word} weight {min(which)!r}")
    out = {}
    for name, want in types.items():
        given = np.asarray(weights[name])
        if given.dtype != want.dtype.numpy or given.shape != want.shape:
            got = f"{given.dtype}[{','.join(map(str, given.shape))}]"
            raise CallError(f"weight {name}: expected {want}, got {got}")
        if keep and not given.flags.writeable and given.ctypes.data % ALIGNMENT == 0 and given.flags.c_contiguous:
            out[name] = given
            continue
        copy = empty(given.shape, given.dtype)
        copy[...] = given
        copy.flags.writeable = False
        out[name] = copy
    return out


def index(weights: Mapping[str, Array]) -> Any:
    """IREE's index over these arrays; it keeps them alive."""
    out = bindings.native().ParameterIndex()
    for name, a in weights.items():
        out.add_buffer(key(name), bytes_of(a))
    return out


def provider(weights: Mapping[str, Array]) -> Any:
    """What a module's parameters of the scope `model` are loaded from."""
    return index(weights).create_provider(scope=SCOPE)


def read_weights(path: str | Path) -> dict[str, Array]:
    """The arrays of a `.npz` or `.safetensors` file; PackageError for anything else."""
    suffix = Path(path).suffix if isinstance(path, (str, Path)) else ""
    if suffix == ".npz":
        with refusals_become(PackageError, str(path)):  # an import opens files, too
            from lstm_ir.backends.files import npz  # who loads a package does without
        return npz.read(path)
    if suffix == ".safetensors":
        return safetensors.read(path)
    raise PackageError(f"{path}: expected a .npz or .safetensors file")


def write_irpa(path: str | Path, weights: Mapping[str, Array]) -> None:
    """A parameter file for `iree-run-module --parameters=model=PATH`."""
    arrays = {n: np.require(a, requirements="C") for n, a in weights.items()}
    try:
        with replacing(path) as f:
            index(arrays).create_archive_file(f.name)
    except bindings.RAISED as e:
        raise PackageError(f"{path}: {bindings.short(e)}") from e

"""The header for C of a package's module."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from lstm_ir.backends import queue
from lstm_ir.backends.files import parameters
from lstm_ir.backends.run.package import stored_module
from lstm_ir.cli import files, packages
from lstm_ir.view.c_header import HeaderModule, c_header


def made(
    model: str, output: str | None, target: str | None, key_file: str | None
) -> tuple[str, Mapping[str, Any]]:  # fmt: skip
    """The header, which will be written to `output`, and the weights that the module reads as parameters."""
    if not packages.is_package(model):
        raise click.UsageError(f"--c shows how a package's module is called; {model} is no package")
    files.check_ending("-o", output, ".h", ".hpp")
    found = packages.read(model, key_file)
    packed = stored_module(found, target)
    about = HeaderModule(
        found.manifest.iree, packed.info.name, packed.info.triple, packed.features, parameters.SCOPE,
        {n: parameters.key(n) for n in found.weights},
        frozenset(n for n, w in packed.work.items() if w.published), queue.BYTES,
    )  # fmt: skip
    return c_header(Path(model).stem, found.signature, about), found.weights

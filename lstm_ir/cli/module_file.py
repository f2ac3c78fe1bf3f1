"""The compiled module, of a package or of a graph, as a file for IREE's own tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from lstm_ir.backends import queue
from lstm_ir.backends.run.package import stored_module
from lstm_ir.cli import files, packages

# Who calls a module whose kernels may share their work: a queue for helpers, how many threads share it, and no helpers.
ALONE = f"--input={queue.BYTES}xi8=0 --input=1 --input=0"


def made(
    model: str, output: str, target: str | None, weights: tuple[str, ...], pipeline: str | None,
    key_file: str | None,
) -> tuple[bytes, Mapping[str, Any]]:  # fmt: skip
    """The module, and the weights that it reads as parameters of the scope `model`.

    output: the file that it will be written to, for the words on stderr.

    Of a package the module for `target`, without one that which runs here; nothing is compiled. Of a graph the
    module for `target`, compiled now, which takes nothing beside its inputs.
    """
    files.check_ending("-o", output, ".vmfb")
    if packages.is_package(model):
        if weights or pipeline is not None:
            raise click.UsageError(f"--weights and --pipeline are for graphs; {model} is compiled")
        found = packages.read(model, key_file)
        packed = stored_module(found, target)
        click.echo(f"{output}: the module for {packed.info.name}, IREE {found.manifest.iree}", err=True)
        sharing = ", ".join(n for n, w in packed.work.items() if w.published)
        if sharing:
            click.echo(f"{sharing}: takes, after its inputs, {ALONE}", err=True)
        blob, held = found.blobs[packed.file], found.weights
    else:
        from lstm_ir.api import build
        from lstm_ir.backends.run.devices import resolve

        program = files.read_program(model, weights, whole=True, key_file=key_file)
        options = {} if pipeline is None else {"pipeline": pipeline}
        where = resolve("cpu" if target is None else target)
        with files.progress(f"compiling for {where.info.name}"):
            _, blob = build(program, where, options)
        held = {n: d.array for n, d in program.weights.items()}
    return blob, held

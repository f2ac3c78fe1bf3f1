"""What `compile` and `import` share: a program into a package with one module per target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from lstm_ir import api
from lstm_ir.backends.targets.target import Target
from lstm_ir.cli import files
from lstm_ir.ir.errors import PackageError
from lstm_ir.ir.program import Program


@dataclass(frozen=True)
class PackagePlan:
    """Where a package goes, what it is compiled for, and the options of the compiler."""

    output: str
    places: Mapping[str, Target]
    options: Mapping[str, Any]

    @classmethod
    def of(
        cls, output: str, targets: Sequence[str], pipeline: str | None, kernels: bool | None, timeout: float
    ) -> PackagePlan:
        """The plan, its words checked before anything is compiled."""
        if Path(output).suffix != ".lirpkg":
            raise click.UsageError(f"-o {output}: a package ends in .lirpkg")
        if not Path(output).absolute().parent.is_dir():
            raise PackageError(f"{output}: there is no folder {Path(output).parent}")
        if not (0 < timeout < float("inf")):
            raise click.UsageError(f"--timeout {timeout:g}: a number of seconds above 0")
        options: dict[str, Any] = {"timeout": timeout}
        if kernels is not None:
            options["kernels"] = kernels
        if pipeline is not None:
            options["pipeline"] = pipeline
        return cls(output, api.places(targets), options)

    def write(self, program: Program, explain: bool) -> None:
        """Compile for every target and write the package; progress and, with `explain`, reasons go to stderr."""
        modules = {}
        for word, where in self.places.items():
            if where.note:
                click.echo(f"{word}: {where.note}", err=True)
            with files.progress(f"compiling for {where.info.name}"):
                lowered, blob = api.build(program, where, self.options, helpers=True)
            if explain:
                click.echo(str(lowered.report), err=True)
            modules[word] = (where, lowered, blob)
        api.write_modules(self.output, program, modules)
        click.echo(f"{self.output}: {', '.join(modules)}, {Path(self.output).stat().st_size} bytes", err=True)

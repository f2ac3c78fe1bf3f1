"""What `compile` and `import` share: a program into a package with one module per target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from lstm_ir import api
from lstm_ir.backends.files.packed_graph import Recipe
from lstm_ir.backends.targets import cpus
from lstm_ir.backends.targets.target import Target
from lstm_ir.cli import files, packages
from lstm_ir.ir.errors import PackageError
from lstm_ir.ir.program import Program


@dataclass(frozen=True)
class PackagePlan:
    """Where a package goes, what it is compiled for, and the options of the compiler."""

    output: str
    places: Mapping[str, Target]
    options: Mapping[str, Any]
    recipe: Recipe | None  # what goes into the package beside the graph's text; None: the text does not
    sign_key: bytes | None

    @classmethod
    def of(
        cls, output: str, targets: Sequence[str], options: Mapping[str, Any], keep_graph: bool = True,
        sign_key_file: str | None = None, before: Mapping[str, Any] = MappingProxyType({}),
    ) -> PackagePlan:  # fmt: skip
        """The plan, its words checked before anything is compiled.

        options: of the compiler; None is not given. before: options that hold where the others do not say.
        """
        if Path(output).suffix != ".lirpkg":
            raise click.UsageError(f"-o {output}: a package ends in .lirpkg")
        if not Path(output).absolute().parent.is_dir():
            raise PackageError(f"{output}: there is no folder {Path(output).parent}")
        if not (0 < options["timeout"] < float("inf")):
            raise click.UsageError(f"--timeout {options['timeout']:g}: a number of seconds above 0")
        chosen = {**before, **{name: value for name, value in options.items() if value is not None}}
        recipe = api.recorded(targets, chosen) if keep_graph else None
        return cls(output, api.places(targets, chosen), chosen, recipe, packages.read_key(sign_key_file))

    def runs_here(self, word: str) -> str:
        """The module for `word` that the loader would take here, as a word: of the levels of `cpu` the best."""
        if word != "cpu":
            return word
        levels = [t.info for t in api.places([word], self.options).values()]
        able = [level for level in levels if cpus.refusal(level.triple, level.features) is None]
        return max(able or levels[:1], key=lambda level: len(level.features)).name

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
        api.write_modules(self.output, program, modules, self.recipe, self.sign_key)
        click.echo(f"{self.output}: {', '.join(modules)}, {Path(self.output).stat().st_size} bytes", err=True)

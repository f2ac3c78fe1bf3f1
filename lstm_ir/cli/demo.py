"""`lstm-ir demo`: the main job on real input, and the foreign ops against their origins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from lstm_ir.cli.files import OutputFile, progress
from lstm_ir.demo.model import EpochResult
from lstm_ir.demo.oracle_table import OracleRow
from lstm_ir.demo.oracle_table import rows as oracle_rows
from lstm_ir.demo.run import devices, run
from lstm_ir.ir.temporary import new_folder


@click.command()
@click.option("-o", "--output", type=OutputFile(Path), help="Keep the package (.lirpkg).")
@click.option("--seconds", default=1.0, show_default=True, help="Time for each latency.")
def command(output: Path | None, seconds: float) -> None:
    """Train an LSTM to read handwritten digits, and run it on every device that is here.

    Prints loss, accuracy, agreement with the NumPy meaning, compile time and latency; writes a package,
    runs it again and streams it row by row from there; ends with a table of foreign ops against their
    origins.
    """
    if output is not None and output.suffix != ".lirpkg":
        raise click.UsageError(f"-o {output}: a package ends in .lirpkg")
    with new_folder() as folder:
        package = folder / "digits.lirpkg" if output is None else output
        with _training_bar() as show:
            run(click.echo, package, seconds, show)
    here, absent = devices()
    click.echo("\nForeign ops against their origins: worst |got - want| / max(1, |want|)")
    with progress("compiling and running them on every device"):
        rows = oracle_rows(here, absent)
    _print(rows)


@contextmanager
def _training_bar() -> Iterator[Callable[[EpochResult], None]]:
    """Loss and accuracy on stderr: beside a bar that goes when it is full, or as lines in a file."""
    console = Console(stderr=True)
    columns = ("training", BarColumn(), "{task.description}", TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("compiling", total=None)

        def show(p: EpochResult) -> None:
            bar.update(task, completed=p.step, total=p.steps, description=str(p))
            if p.step == p.steps:
                bar.stop()
            if not console.is_terminal and (p.epoch % 10 == 0 or p.step == p.steps):
                click.echo(f"training: {p}", err=True)

        yield show


def _print(rows: Sequence[OracleRow]) -> None:
    if not rows:
        click.echo("none: the project has no foreign op yet")
        return
    reasons: dict[str, str] = {}  # a long reason stands once, below the table
    table = [["op", "oracle", *rows[0].cells]]
    for row in rows:
        table.append([row.op, row.oracle, *(_cell(text, reasons) for text in row.cells.values())])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        cells = (f"{text:{width}}" for text, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
    for reason, mark in reasons.items():
        click.echo(f"{mark}: {reason}")


def _cell(text: str, reasons: dict[str, str]) -> str:
    state, colon, reason = text.partition(": ")
    if not colon:
        return text
    mark = reasons.setdefault(reason, f"({len(reasons) + 1})")
    return f"{state}: {mark}"

"""`lstm-ir targets`: what can be compiled here, what runs here, and why not."""

from __future__ import annotations

import click

from lstm_ir.backends.run.devices import Availability, available
from lstm_ir.backends.targets import cpus
from lstm_ir.backends.targets.targets import this_machine, words

_NO_COMPILER = "iree-base-compiler is not installed: pip install iree-base-compiler"


@click.command()
@click.option("--words", "all_words", is_flag=True, help="List every target word instead.")
@click.option("--check", is_flag=True, help="Compile a small LSTM and its gradient for each kind of module, run what "
              "can run here, and compare the results; half a minute.")  # fmt: skip
def command(all_words: bool, check: bool) -> None:
    """List the kinds of target: compiled here or not, devices present, and the reason if none."""
    if all_words:
        for word in words():
            click.echo(word)
        return
    if check:
        _check()
        return
    for a in available():
        compiles = "compiles here" if a.compiles else f"does not compile here: {_NO_COMPILER}"
        click.echo(f"{a.kind:7} {compiles}; {_runs(a)}")
    click.echo("\n`lstm-ir targets --words` lists the names behind the colon, as in cuda:sm_89.")


def _check() -> None:
    """Exit code 1 where a result is wrong."""
    from lstm_ir.verification.hardware import trials  # the compiler, only where it is asked for

    wrong = False
    for found in trials():
        click.echo(f"{found.word:19} {found}")
        wrong |= found.worst is not None and not found.right
    if wrong:
        raise click.exceptions.Exit(1)


def _runs(a: Availability) -> str:
    if not a.devices:
        return f"does not run here: {a.reason}"
    if a.kind == "cpu":
        return f"runs here as {this_machine().info.name}" if a.compiles else f"runs here: {cpus.here()}"
    return f"runs here on {'; '.join(a.devices)}"

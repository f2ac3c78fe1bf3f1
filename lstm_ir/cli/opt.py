"""`lstm-ir opt`: passes over a graph, text in and text out, so that it can be chained."""

from __future__ import annotations

from dataclasses import replace

import click

from lstm_ir.backends.run.devices import resolve
from lstm_ir.cli import files, packages
from lstm_ir.ir.errors import PassError
from lstm_ir.ir.printer import print_graph, print_program
from lstm_ir.passes.pipeline import PassStep, Pipeline, for_target
from lstm_ir.passes.pipelines import registry


@click.command()
@click.argument("graph", default="-")
@click.option("-p", "--pipeline", "text", help="Passes: a,b{x=1},c. Default: those of the target.")
@click.option("--target", help="Whose pipeline to run, and what passes may know; default: none.")
@click.option("-w", "--weights", multiple=True, help="Arrays (.npz, .safetensors, .lirpkg) the text names.")
@click.option("-o", "--output", help="Where the text goes; default: stdout.")
@click.option("--stop-after", help="Stop after the pass of this name, or this number (from 1).")
@click.option("--print-each", is_flag=True, help="Print the graph after each pass (stderr).")
@click.option("--explain", is_flag=True, help="Say which rules fired, and why others did not.")
@click.option("--time", "timed", is_flag=True, help="Say how long each pass took.")
@click.option("--locs", is_flag=True, help="Write each node's source line.")
@click.option("--list", "listed", is_flag=True, help="List the passes and stop.")
@packages.key_option
def command(
    graph: str, text: str | None, target: str | None, weights: tuple[str, ...],
    output: str | None, stop_after: str | None, print_each: bool, explain: bool, timed: bool,
    locs: bool, listed: bool, key_file: str | None,
) -> None:  # fmt: skip
    """Run passes over GRAPH (a .lir file or a package; `-` or nothing is stdin) and write the text."""
    if listed:
        _list()
        return
    files.check_ending("-o", output, *files.TEXTS)
    program = files.read_program(graph, weights, key_file=key_file)
    program.verify()
    info = None if target is None else resolve(target).info
    pipeline = for_target(info) if text is None else Pipeline.parse(text)
    pipeline = _cut(pipeline, stop_after)

    def observe(step: PassStep) -> None:
        _report(step, print_each, explain, timed, locs)

    entries = {n: pipeline.run(g, info, observe).graph for n, g in program.entries.items()}
    out = replace(program, entries=entries)
    files.write_text(output, print_program(out, locs))


def _cut(pipeline: Pipeline, stop_after: str | None) -> Pipeline:
    if stop_after is None:
        return pipeline
    names = [p.name for p in pipeline.passes]
    at = names.index(stop_after) if stop_after in names else None
    if stop_after.isdecimal() and 1 <= int(stop_after) <= len(names):
        at = int(stop_after) - 1
    if at is None:
        raise PassError(f"--stop-after {stop_after}: the pipeline is {', '.join(names)}")
    return replace(pipeline, passes=pipeline.passes[: at + 1])


def _report(step: PassStep, print_each: bool, explain: bool, timed: bool, locs: bool) -> None:
    if print_each or explain or timed:
        state = "changed" if step.changed else "nothing to do"
        clock = f" ({step.seconds * 1e3:.1f} ms)" if timed else ""
        click.echo(f"// {step.name}: {state}{clock}", err=True)
    if explain:
        for fired in step.fired:
            click.echo(f"//   fired {fired}", err=True)
        for miss in step.misses:
            click.echo(f"//   left alone: {miss}", err=True)
    if print_each and step.changed:
        click.echo(print_graph(step.after, locs), err=True)


def _list() -> None:
    width = max(map(len, registry()), default=0)
    for name, cls in sorted(registry().items()):
        first = (cls.__doc__ or "").strip().splitlines()
        click.echo(f"{name:{width}}  {first[0] if first else ''}")

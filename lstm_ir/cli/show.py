"""`lstm-ir show`: a graph at any stage, as text or as an SVG picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import click

from lstm_ir.api import lower, prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.cli import files
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.printer import print_program
from lstm_ir.ir.program import Program
from lstm_ir.passes.pipeline import Pipeline, for_target
from lstm_ir.view.picture import picture

STAGES = ("source", "core", "scheduled", "stablehlo", "kernel")
GRAPHS = STAGES[:3]


@dataclass(frozen=True)
class _Wanted:
    stage: str
    target: str
    pipeline: str | None
    locs: bool


@click.command()
@click.argument("graph", default="-")
@click.option("-s", "--stage", type=click.Choice(STAGES), default="source", show_default=True,
              help="source: as written; core: foreign ops expanded; scheduled: after all passes; "
              "stablehlo: the pure module; kernel: the module that IREE compiles.")  # fmt: skip
@click.option("-o", "--output", help="A file; a name in .svg makes a picture. Default: stdout.")
@click.option("--beside", is_flag=True, help="In a picture: the source graph beside the stage's.")
@click.option("-t", "--target", default="cpu", show_default=True, help="Whose passes and kernels.")
@click.option("-p", "--pipeline", help="Passes to run instead of the target's own.")
@click.option("-w", "--weights", multiple=True, help="Arrays (.npz, .safetensors) the text names.")
@click.option("--locs", is_flag=True, help="Write each node's source line.")
def command(
    graph: str, stage: str, output: str | None, beside: bool, target: str, pipeline: str | None,
    weights: tuple[str, ...], locs: bool,
) -> None:  # fmt: skip
    """Print GRAPH (a .lir file; `-` or nothing: stdin) at a stage, or draw it with -o FILE.svg."""
    drawing = output is not None and Path(output).suffix == ".svg"
    if drawing and stage not in GRAPHS:
        raise click.UsageError(f"{stage} is a module; pictures show {', '.join(GRAPHS)}")
    if beside and not drawing:
        raise click.UsageError("--beside needs -o FILE.svg")
    program = files.read_program(graph, weights)
    program.verify()
    wanted = _Wanted(stage, target, pipeline, locs)
    if drawing:
        files.write_text(output, _picture(program, wanted, beside))
    else:
        files.write_text(output, _text(program, wanted))


def _text(program: Program, wanted: _Wanted) -> str:
    if wanted.stage == "stablehlo":
        return lower(program, pipeline=wanted.pipeline, locs=wanted.locs)
    if wanted.stage == "kernel":
        options = {} if wanted.pipeline is None else {"pipeline": wanted.pipeline}
        lowered = prepare(program, resolve(wanted.target), options)
        for note in lowered.report.notes:
            click.echo(f"// {note}", err=True)
        return lowered.text
    return print_program(replace(program, entries=_stage(program, wanted)), wanted.locs)


def _stage(program: Program, wanted: _Wanted) -> Mapping[str, Graph]:
    if wanted.stage == "source":
        return program.entries
    info = resolve(wanted.target).info
    if wanted.stage == "core":
        chosen = Pipeline.parse("core")
    else:
        chosen = for_target(info) if wanted.pipeline is None else Pipeline.parse(wanted.pipeline)
    return {n: chosen.run(g, info).graph for n, g in program.entries.items()}


def _picture(program: Program, wanted: _Wanted, beside: bool) -> str:
    shown = []
    for name, g in _stage(program, wanted).items():
        entry = f"@{program.name}" if len(program.entries) == 1 else f"@{program.name}, {name}"
        if beside:
            shown.append((f"{entry}, source", program.entries[name]))
        shown.append((f"{entry}, {wanted.stage}", g))
    return picture(shown)

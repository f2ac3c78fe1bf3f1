"""`lstm-ir show`: a graph at any stage, as text, picture or compiled module; how a package is called from C."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from lstm_ir.api import compile, lower, prepare
from lstm_ir.backends.run import runtime
from lstm_ir.backends.run.devices import resolve
from lstm_ir.backends.run.profile import flow_text
from lstm_ir.cli import c_header_file, files, module_file, packages
from lstm_ir.cli import contents as package_contents
from lstm_ir.ir.errors import CallError
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.output_file import check_folder, replacing
from lstm_ir.ir.printable import safe
from lstm_ir.ir.printer import print_program
from lstm_ir.ir.program import Program
from lstm_ir.passes.pipeline import Pipeline, for_target
from lstm_ir.view.picture import picture
from lstm_ir.view.times import LEGEND, coloured

STAGES = ("source", "core", "scheduled", "stablehlo", "kernel", "module")
GRAPHS = STAGES[:3]
PROFILE, HEADER, CONTENTS = "--profile", "--c", "--contents"
TAKEN = {
    "--stage source": ("-o", "-w", "--beside", "--locs", "--weights-to"),
    "--stage core": ("-o", "-t", "-w", "--beside", "--locs", "--weights-to"),
    "--stage scheduled": ("-o", "-t", "-p", "-w", "--beside", "--locs", "--weights-to"),
    "--stage stablehlo": ("-o", "-p", "-w", "--beside", "--locs", "--weights-to"),
    "--stage kernel": ("-o", "-t", "-p", "-w", "--beside", "--weights-to"),
    "--stage module": ("-o", "-t", "-p", "-w", "--weights-to"),
    PROFILE: ("-s", "-o", "-t", "-p", "-w", "-i", "-e"),
    HEADER: ("-o", "-t", "--weights-to"),
    CONTENTS: ("-o", "--key-file"),
}
"""The options that have a meaning, by what is shown; --key-file is of any package."""


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
              "stablehlo: the pure module; kernel: the module that IREE compiles; module: IREE's, for -o.")  # fmt: skip
@click.option("-o", "--output", help="A file: .svg makes a picture, .lir, .mlir and .txt text. Default: stdout.")
@click.option("--beside", is_flag=True, help="In a picture: the source graph beside the stage's.")
@click.option("-t", "--target", help="Whose passes and kernels; default: cpu. Of a package's modules, which; "
              "default: the one that runs here.")  # fmt: skip
@click.option("-p", "--pipeline", help="Passes to run instead of the target's own.")
@click.option("-w", "--weights", multiple=True, help="Arrays (.npz, .safetensors, .lirpkg) the text names.")
@click.option("--profile", is_flag=True, help="Colour the nodes of the scheduled picture by their time in a call; "
              "needs -i and -o FILE.svg.")  # fmt: skip
@click.option("-i", "--input", "inputs", multiple=True, help="For --profile: arrays of the call, as for `run`.")
@click.option("-e", "--entry", help="For --profile: which entry of a program; default: main.")
@click.option("--locs", is_flag=True, help="Write each node's source line.")
@click.option("--weights-to", help="Write the arrays too: .npz, .safetensors, or .irpa for IREE's tools.")
@click.option("--c", "header", is_flag=True, help="Of a package: a header for C, with the layout of calls of its "
              "module for -t, by default the one that runs here.")  # fmt: skip
@click.option("--contents", is_flag=True, help="Of a package: its modules and which of them run here, entries, sizes, "
              "versions.")  # fmt: skip
@packages.key_option
def command(
    graph: str, stage: str, output: str | None, beside: bool, target: str | None, pipeline: str | None,
    weights: tuple[str, ...], profile: bool, inputs: tuple[str, ...], entry: str | None, locs: bool,
    weights_to: str | None, header: bool, contents: bool, key_file: str | None,
) -> None:  # fmt: skip
    """Print GRAPH (a .lir file or a package; `-` or nothing: stdin) at a stage, or draw it with -o FILE.svg."""
    given = {
        "-s": stage != "source", "-t": target, "-p": pipeline, "-w": weights, "-i": inputs, "-e": entry is not None,
        "--beside": beside, "--locs": locs, "--weights-to": weights_to, HEADER: header, PROFILE: profile,
    }  # fmt: skip
    if contents:
        _check(CONTENTS, given)
        if not packages.is_package(graph):
            raise click.UsageError(f"--contents says what a package holds; {graph} is no package")
        files.check_ending("-o", output, ".txt")
        files.write_text(output, safe("\n".join(package_contents.lines(packages.read(graph, key_file)))))
        return
    if weights_to is not None:
        files.check_weights_path(Path(weights_to))
    for path in (output, weights_to):
        if path is not None:
            check_folder(path)
    if (inputs or entry is not None) and not profile:
        raise click.UsageError("-i and -e are of a call: give --profile too")
    if profile:
        if output is None or Path(output).suffix != ".svg" or stage not in ("source", "scheduled"):
            raise click.UsageError("--profile colours the picture of the scheduled graph: it needs -o FILE.svg")
        _check(PROFILE, {**given, PROFILE: False})
        program = files.read_program(graph, weights, whole=True, key_file=key_file)
        files.write_text(output, _profiled(program, target, pipeline, inputs, entry))
        return
    if header:
        _check(HEADER, {**given, HEADER: False})
        text, held = c_header_file.made(graph, output, target, key_file)
        _write_weights(weights_to, held)
        files.write_text(output, text)
        return
    _check(f"--stage {stage}", {**given, "-s": False})
    if stage == "module":
        if output is None:
            raise click.UsageError("--stage module is no text: give -o FILE.vmfb")
        blob, held = module_file.made(graph, output, target, weights, pipeline, key_file)
        _write_weights(weights_to, held)
        with replacing(Path(output)) as f:
            f.write(blob)
        return
    files.check_ending("-o", output, *files.TEXTS, ".svg")
    drawing = output is not None and Path(output).suffix == ".svg"
    if drawing and stage not in GRAPHS:
        raise click.UsageError(f"{stage} is a module; pictures show {', '.join(GRAPHS)}")
    if beside and not drawing:
        raise click.UsageError("--beside needs -o FILE.svg")
    if locs and drawing:
        raise click.UsageError("--locs is of a text: a picture shows no source lines")
    program = files.read_program(graph, weights, whole=weights_to is not None, key_file=key_file)
    program.verify()
    wanted = _Wanted(stage, "cpu" if target is None else target, pipeline, locs)
    shown = _picture(program, wanted, beside) if drawing else _text(program, wanted)
    if weights_to is not None:
        _write_weights(weights_to, {n: d.array for n, d in program.weights.items()})
    files.write_text(output, shown)


def _check(what: str, given: Mapping[str, Any]) -> None:
    """Refuse an option that has no meaning for what is shown."""
    for option, value in given.items():
        if value and option not in TAKEN[what]:
            raise click.UsageError(f"{what} takes no {option}: of the others it takes {', '.join(TAKEN[what])}")


def _write_weights(path: str | None, arrays: Mapping[str, Any]) -> None:
    """Of what is made; what cannot be made, or has arrays that the file cannot hold, leaves no file."""
    if path is not None:
        files.write_weights(Path(path), arrays)


def _text(program: Program, wanted: _Wanted) -> str:
    if wanted.stage == "stablehlo":
        return f"{_arguments(program)}{lower(program, pipeline=wanted.pipeline, locs=wanted.locs)}"
    if wanted.stage == "kernel":
        options = {} if wanted.pipeline is None else {"pipeline": wanted.pipeline}
        lowered = prepare(program, resolve(wanted.target), options)
        for note in lowered.report.notes:
            click.echo(f"// {note}", err=True)
        return lowered.text
    return print_program(replace(program, entries=_stage(program, wanted)), wanted.locs)


def _arguments(program: Program) -> str:
    """A comment with the names of each function's arguments: StableHLO has numbers for them."""
    lines = [f"// {n}: {', '.join([*g.input_names, *g.weights])}\n" for n, g in program.entries.items()]
    return safe("".join(lines)) if all("\n" not in line[:-1] for line in lines) else ""


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


def _profiled(
    program: Program, target: str | None, pipeline: str | None, inputs: tuple[str, ...], entry: str | None
) -> str:
    """The scheduled graph of an entry, its nodes coloured by the time of the dispatches that compute them."""
    arrays, word = files.read_inputs(inputs), "cpu" if target is None else target
    where = resolve(word)
    options = {} if pipeline is None else {"pipeline": pipeline}
    with files.progress(f"compiling for {word}"):
        exe = compile(program, word, options=options)
    with exe:
        main = exe.signature.main
        name = entry if entry is not None else "main" if main is None else main.name
        if name not in exe.entries:
            raise CallError(f"no entry is called {name!r}; there are {', '.join(exe.entries)}")
        with files.progress("reading the lines of its dispatches"):
            lowered = prepare(program, where, options, helpers=runtime.threads() > 1)
            flow = flow_text(lowered.text, where)
        with files.progress("profiling"):
            found = exe.profile(name, arrays, flow)
    rows = [([(p.file, p.line, p.op) for p in r.places], r.sites, r.seconds) for r in found.rows]
    made = lowered.optimized.entries[name]
    times = coloured(made, rows, max(found.inside, found.seconds))
    title = f"@{program.name}, {name} on {found.device}: {found.seconds * 1e3:.3f} ms per call"
    return picture([(title, made)], times, LEGEND)

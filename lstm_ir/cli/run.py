"""`lstm-ir run`: a package or a graph on arrays from files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from lstm_ir.api import compile, prepare
from lstm_ir.backends.run import runtime
from lstm_ir.backends.run.devices import resolve
from lstm_ir.backends.run.profile import flow_text
from lstm_ir.cli import files, packages
from lstm_ir.ir.errors import CallError
from lstm_ir.ir.interpret import interpret
from lstm_ir.ir.program import Program
from lstm_ir.ir.signature import Signature
from lstm_ir.loading import load


@click.command()
@click.argument("model")
@click.option("-i", "--input", "inputs", multiple=True,
              help="NAME=FILE.npy, NAME=FILE.npz:KEY, or FILE.npz for all its arrays.")  # fmt: skip
@click.option("-o", "--output", help="A .npz or .safetensors (or .npy for one output); default: a summary.")
@click.option("-d", "--device", help="Where to run: cpu, vulkan, cuda, …; default: a package's "
              "first target that runs here, cpu for a graph.")  # fmt: skip
@click.option("-e", "--entry", help="Which entry of a program; default: main.")
@click.option("-w", "--weights", multiple=True, help="Arrays (.npz, .safetensors, .lirpkg) a graph names.")
@click.option("--interpret", is_flag=True, help="Run a graph by its NumPy meaning, uncompiled.")
@click.option("--explain", is_flag=True, help="Say how a graph was compiled, and which module of a package runs.")
@click.option("--profile", is_flag=True, help="Say how long each dispatch takes, and for which "
              "nodes and lines (of a graph; of a package names alone).")  # fmt: skip
@click.option("--picture", type=click.Path(dir_okay=False),
              help="The profile as a picture, to this .svg file.")  # fmt: skip
@packages.key_option
def command(
    model: str, inputs: tuple[str, ...], output: str | None, device: str | None,
    entry: str | None, weights: tuple[str, ...], interpret: bool, explain: bool,
    profile: bool, picture: str | None, key_file: str | None,
) -> None:  # fmt: skip
    """Run MODEL (a .lirpkg package or a .lir graph) once."""
    if picture is not None and not profile:
        raise click.UsageError("--picture is of a profile: give --profile too")
    files.check_ending("--picture", picture, ".svg")
    if profile and output is not None:
        raise click.UsageError("--profile gives times, no results: leave -o out")
    if profile and interpret:
        raise click.UsageError("--profile is for compiled graphs, not for --interpret")
    if interpret and (device is not None or explain):
        raise click.UsageError("--interpret compiles nothing, and runs nowhere else: leave -d and --explain out")
    to = None if output is None else Path(output)
    if to is not None:
        files.check_arrays_path(to)
    packages.no_key(model, key_file, weights)
    arrays = files.read_inputs(inputs)
    if profile:
        _profile(model, device, entry, weights, arrays, explain, picture, key_file)
        return
    call, close = _callable(model, device, entry, weights, interpret, explain, key_file, to)
    try:
        results = call(arrays)
    finally:
        close()
    if to is None:
        _summary(results)
    else:
        files.write_arrays(to, results)


Call = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def _callable(
    model: str, device: str | None, entry: str | None, weights: tuple[str, ...],
    interpret: bool, explain: bool, key_file: str | None, to: Path | None,
) -> tuple[Call, Callable[[], None]]:  # fmt: skip
    """What computes the results that are written `to` a file, which is asked first whether it holds them; its end."""
    if packages.is_package(model):
        exe = _packed(model, device, weights, interpret, explain, key_file)
        _check_entry(exe.signature, entry, to)
    else:
        program = files.read_program(model, weights, whole=True, key_file=key_file)
        if interpret:
            return _interpreted(program, entry, to), lambda: None
        _check_entry(program.signature(), entry, to)
        exe, _ = _compiled(program, device, explain)
    return (exe if entry is None else exe.entries[entry]), exe.close


def _check_entry(signature: Signature, entry: str | None, to: Path | None) -> None:
    if entry is not None and entry not in signature.entries:
        raise CallError(f"no entry is called {entry!r}; there are {', '.join(signature.entries)}")
    found = signature.main if entry is None else signature.entries[entry]
    if to is not None and found is not None:  # without an entry the call says which there are
        files.check_arrays(to, {p.name: p.type.dtype.numpy for p in found.outputs})


def _packed(
    model: str, device: str | None, weights: tuple[str, ...], interpret: bool, explain: bool, key_file: str | None
) -> Any:
    if interpret or weights:
        raise click.UsageError("--interpret and --weights are for graphs, not packages")
    exe = load(model, device, require_key=packages.read_key(key_file))
    if explain:
        click.echo(f"{model}: its module for {exe.target}", err=True)
    return exe


def _compiled(program: Program, device: str | None, explain: bool) -> tuple[Any, str]:
    """The executable, and the kind of its target."""
    word = "cpu" if device is None else device
    kind = "cpu" if word.startswith("local-") else word.partition(":")[0]
    with files.progress(f"compiling for {kind}"):
        exe = compile(program, kind, None if word == kind else word)
    if explain:
        click.echo(str(exe.report), err=True)
    return exe, kind


def _profile(
    model: str, device: str | None, entry: str | None, weights: tuple[str, ...],
    arrays: Mapping[str, Any], explain: bool, picture: str | None, key_file: str | None,
) -> None:  # fmt: skip
    flow = None
    if packages.is_package(model):
        exe = _packed(model, device, weights, False, explain, key_file)
    else:
        program = files.read_program(model, weights, whole=True, key_file=key_file)
        exe, kind = _compiled(program, device, explain)
        with files.progress("reading the lines of its dispatches"):
            flow = _flow(program, kind)
    main = exe.signature.main
    name = entry if entry is not None else "main" if main is None else main.name
    if name not in exe.entries:
        raise CallError(f"no entry is called {name!r}; there are {', '.join(exe.entries)}")
    try:
        with files.progress("profiling"):
            found = exe.profile(name, arrays, flow)
    finally:
        exe.close()
    click.echo(str(found))
    if picture is not None:
        files.write_text(picture, found.picture())


def _flow(program: Program, kind: str) -> str:
    target = resolve(kind)
    return flow_text(prepare(program, target, helpers=runtime.threads() > 1).text, target)


def _interpreted(program: Program, entry: str | None, to: Path | None) -> Call:
    name = "main" if entry is None else entry
    if name not in program.entries:
        raise CallError(f"no entry is called {name!r}; there are {', '.join(program.entries)}")
    graph = program.entries[name]
    if to is not None:
        types = (v.dtype.numpy for v in graph.outputs)
        files.check_arrays(to, dict(zip(graph.output_names, types, strict=True)))
    return lambda arrays: interpret(graph, arrays)


def _summary(results: Mapping[str, Any]) -> None:
    for name, a in results.items():
        array = np.asarray(a)
        shown = np.array2string(array.reshape(-1)[:6], separator=", ", max_line_width=200)
        more = " …" if array.size > 6 else ""
        click.echo(f"{name}: {array.dtype}[{','.join(map(str, array.shape))}] {shown}{more}")

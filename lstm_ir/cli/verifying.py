"""`lstm-ir verify`: a foreign model beside what is made of it; a package beside what its graph means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from lstm_ir.cli import files, model_options, packages
from lstm_ir.importers.kinds import ModelKind
from lstm_ir.ir.interpret import interpret
from lstm_ir.ir.printable import safe
from lstm_ir.loading import load
from lstm_ir.unpacking import unpacked
from lstm_ir.verification.result import Verification
from lstm_ir.verification.verify import verify


@click.command("verify")
@click.argument("model")
@click.option("-t", "--target", help="What it is compiled for, and runs on; default: cpu. Of a package which module; "
              "default: the one that runs here.")  # fmt: skip
@model_options.imported
@click.option("--try", "tried", multiple=True, help="Sizes that the calls have in turn: T=1,7,100; default: drawn.")
@click.option("--range", "ranges", multiple=True,
              help="Values of an input: ids=0..99; default: normal floats, integers as the graph needs.")  # fmt: skip
@click.option("--calls", default=4, show_default=True, help="How many calls, each with other sizes and arrays.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of sizes and arrays.")
@click.option("--absolute", type=float, help="A difference may be ABSOLUTE + RELATIVE * the largest |value| of the "
              "output; default of both: 2e-5 for f32.")  # fmt: skip
@click.option("--relative", type=float, help="See --absolute.")
@click.option("--seconds", type=float, help="Timing of each side in each call; 0: none. Default: 0.3; of a package 0.")
@click.option("--cold/--no-cold", default=True, show_default=True,
              help="Time processes from their start too.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The result as JSON.")
@packages.key_option
def command(
    model: str, kind: ModelKind | None, importer_options: dict[str, Any], target: str | None, tried: tuple[str, ...],
    ranges: tuple[str, ...], calls: int, seed: int, absolute: float | None, relative: float | None,
    seconds: float | None, cold: bool, as_json: bool, key_file: str | None,
) -> None:  # fmt: skip
    """Run MODEL by its own library and by this project, and compare: results, times, sizes, cold starts.

    MODEL: .onnx, by onnxruntime; .keras, .h5, by Keras; a SavedModel's folder or .pb, by TensorFlow; a package, by the
    NumPy meaning of the graph in it, nothing compiled. The exit code is 1 where a difference is beyond the limits.
    Nothing else should run while times are taken.
    """
    packages.no_key(model, key_file)
    precision = None
    how: dict[str, Any] = {
        "sizes": model_options.tried(tried), "ranges": model_options.ranges(ranges), "calls": calls, "seed": seed,
        "absolute": absolute, "relative": relative,
    }  # fmt: skip
    if kind is None:
        with files.progress("running and comparing"):
            result, precision = _packed(model, target, key_file, {"seconds": seconds or 0.0, "cold": cold, **how})
    else:
        graph, original = kind.graph(model, importer_options), kind.original(model, importer_options)
        how["seconds"] = 0.3 if seconds is None else seconds
        with files.progress("compiling and comparing"):
            result = verify(graph, against=original, cold=cold, target=target, **how)
    click.echo(files.json_text(result.as_json()) if as_json else safe(str(result)))
    if not result.ok:
        if precision is not None and absolute is None and relative is None:
            model_options.say_limits(precision)
        raise click.exceptions.Exit(1)


def _packed(path: str, device: str | None, key_file: str | None, how: dict[str, Any]) -> tuple[Verification, Any]:
    """A package's module beside the NumPy meaning of its graph's text, with its weights; the precision it has."""
    found = packages.read(path, key_file)
    program, recipe = unpacked(found).program, found.manifest.recipe
    with load(path, device, require_key=packages.read_key(key_file)) as exe:
        click.echo(f"{path}: its module for {exe.target}", err=True)
        main = exe.signature.main
        graph = None if main is None else program.entries[main.name]

        def interpreter(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
            assert graph is not None  # else nothing is called
            return interpret(graph, arrays)

        return verify(exe, against=interpreter, **how), None if recipe is None else recipe.options.get("precision")

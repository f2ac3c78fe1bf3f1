"""`lstm-ir verify`: a foreign model beside what is made of it."""

from __future__ import annotations

from typing import Any

import click

from lstm_ir.cli import files, model_options
from lstm_ir.importers.kinds import ModelKind
from lstm_ir.ir.printable import safe
from lstm_ir.verification.verify import verify


@click.command("verify")
@click.argument("model")
@click.option("-t", "--target", default="cpu", show_default=True, help="What it is compiled for, and runs on.")
@model_options.imported
@click.option("--try", "tried", multiple=True, help="Sizes that the calls have in turn: T=1,7,100; default: drawn.")
@click.option("--range", "ranges", multiple=True,
              help="Values of an input: ids=0..99; default: normal floats, integers as the graph needs.")  # fmt: skip
@click.option("--calls", default=4, show_default=True, help="How many calls, each with other sizes and arrays.")
@click.option("--seed", default=0, show_default=True, help="Of sizes and arrays.")
@click.option("--absolute", type=float, help="A difference may be ABSOLUTE + RELATIVE * the largest |value| of the "
              "output; default of both: 2e-5 for f32.")  # fmt: skip
@click.option("--relative", type=float, help="See --absolute.")
@click.option("--seconds", default=0.3, show_default=True, help="Timing of each side in each call; 0: none.")
@click.option("--cold/--no-cold", default=True, show_default=True, help="Time processes from their start too.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON.")
def command(
    model: str, kind: ModelKind, importer_options: dict[str, Any], target: str, tried: tuple[str, ...],
    ranges: tuple[str, ...], calls: int, seed: int, absolute: float | None, relative: float | None, seconds: float,
    cold: bool, as_json: bool,
) -> None:  # fmt: skip
    """Run MODEL by its own library and by this project, and compare: results, times, sizes, cold starts.

    MODEL: .onnx, by onnxruntime; .keras, .h5, by Keras; a SavedModel's folder or .pb, by TensorFlow. The exit code is 1
    where a difference is beyond the limits. Nothing else should run while times are taken.
    """
    numbers, values = model_options.tried(tried), model_options.ranges(ranges)
    graph = kind.graph(model, importer_options)
    with files.progress("compiling and comparing"):
        result = verify(
            graph, against=kind.original(model, importer_options), sizes=numbers, ranges=values, calls=calls, seed=seed,
            absolute=absolute, relative=relative, seconds=seconds, cold=cold, target=target,
        )  # fmt: skip
    click.echo(files.json_text(result.as_json()) if as_json else safe(str(result)))
    if not result.ok:
        raise click.exceptions.Exit(1)

"""`lstm-ir verify`: a foreign model beside what is made of it."""

from __future__ import annotations

import click

from lstm_ir.cli import files, onnx_options
from lstm_ir.importers.onnx.model import from_onnx
from lstm_ir.verification.verify import verify


@click.command("verify")
@click.argument("model")
@click.option("-t", "--target", default="cpu", show_default=True, help="What it is compiled for, and runs on.")
@click.option("--constant", "constants", multiple=True, help="Fix an input: NAME=NUMBER, NAME=1,2,3 or NAME=FILE.npy.")
@click.option("--size", "sizes", multiple=True, help="Fix or rename a named size at import: T=100, input_0=B.")
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
    model: str, target: str, constants: tuple[str, ...], sizes: tuple[str, ...], tried: tuple[str, ...],
    ranges: tuple[str, ...], calls: int, seed: int, absolute: float | None, relative: float | None, seconds: float,
    cold: bool, as_json: bool,
) -> None:  # fmt: skip
    """Run MODEL (an .onnx file) by onnxruntime and by this project, and compare: results, times, sizes, cold starts.

    The exit code is 1 where a difference is beyond the limits. Nothing else should run while times are taken.
    """
    fixed = onnx_options.constants(constants)
    numbers, values = onnx_options.tried(tried), onnx_options.ranges(ranges)
    graph = from_onnx(model, constants=fixed, sizes=onnx_options.sizes(sizes))
    with files.progress("compiling and comparing"):
        result = verify(
            graph, against=model, constants=fixed, sizes=numbers, ranges=values, calls=calls, seed=seed,
            absolute=absolute, relative=relative, seconds=seconds, cold=cold, target=target,
        )  # fmt: skip
    click.echo(files.json_text(result.as_json()) if as_json else files.safe(str(result)))
    if not result.ok:
        raise click.exceptions.Exit(1)

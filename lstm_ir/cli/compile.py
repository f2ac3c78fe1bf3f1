"""`lstm-ir compile`: a graph into a package with one module per target."""

from __future__ import annotations

from pathlib import Path

import click

from lstm_ir.cli import files
from lstm_ir.cli.package import PackagePlan


@click.command()
@click.argument("graph")
@click.option("-o", "--output", help="The package; default: the graph's name with .lirpkg.")
@click.option("-t", "--target", "targets", multiple=True, default=("cpu",), show_default=True,
              help="A target word, repeat it for several; see `lstm-ir targets`.")  # fmt: skip
@click.option("-w", "--weights", multiple=True, help="Arrays (.npz, .safetensors) the text names.")
@click.option("-p", "--pipeline", help="Passes to run instead of the target's own.")
@click.option("--kernels/--no-kernels", default=None,
              help="Recurrence kernels, or StableHLO loops only; default: kernels on CPUs.")  # fmt: skip
@click.option("--timeout", type=float, default=300.0, show_default=True, help="Seconds per target.")
@click.option("--explain", is_flag=True, help="Say what each pass did, and kernel or loop and why.")
def command(
    graph: str, output: str | None, targets: tuple[str, ...], weights: tuple[str, ...],
    pipeline: str | None, kernels: bool | None, timeout: float, explain: bool,
) -> None:  # fmt: skip
    """Compile GRAPH (a .lir file) and write a package.

    The target `cpu` is one module for each level of this architecture (x86-64-v2, v3 and v4), so that the package
    runs on other machines too; `cpu:NAME` names a processor.
    """
    if output is None:
        if graph == "-":
            raise click.UsageError("a graph from stdin needs -o")
        output = str(Path(graph).with_suffix(".lirpkg"))
    plan = PackagePlan.of(output, targets, pipeline, kernels, timeout)
    plan.write(files.read_program(graph, weights, whole=True), explain)

"""`lstm-ir compile`: a graph, or what a package was made of, into a package with one module per target."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from lstm_ir.cli import files, packages
from lstm_ir.cli.package import PackagePlan
from lstm_ir.passes.pipelines import PRECISIONS


@click.command()
@click.argument("graph")
@click.option("-o", "--output", help="The package; default: the graph's name with .lirpkg.")
@click.option("-t", "--target", "targets", multiple=True,
              help="A target word, repeat it for several; see `lstm-ir targets`. Default: cpu; of a package those "
              "that it was made for.")  # fmt: skip
@click.option("-w", "--weights", multiple=True, help="Arrays (.npz, .safetensors, .lirpkg) the text names.")
@click.option("-p", "--pipeline", help="Passes to run instead of the target's own.")
@click.option("--precision", type=click.Choice(list(PRECISIONS)),
              help="Weights of products in fewer bits; int8-dynamic: rows too, at each step.")  # fmt: skip
@click.option("--kernels/--no-kernels", default=None,
              help="Recurrence kernels, or StableHLO loops only; default: kernels on CPUs, CUDA and "
              "Vulkan.")  # fmt: skip
@click.option("--timeout", type=float, default=300.0, show_default=True, help="Seconds per target.")
@click.option("--explain", is_flag=True, help="Say what each pass did, and kernel or loop and why.")
@packages.sign_options
@packages.key_option
def command(
    graph: str, output: str | None, targets: tuple[str, ...], weights: tuple[str, ...],
    pipeline: str | None, precision: str | None, kernels: bool | None, timeout: float, explain: bool,
    keep_graph: bool, sign_key_file: str | None, key_file: str | None,
) -> None:  # fmt: skip
    """Compile GRAPH (a .lir file, or a package that has its graph) and write a package.

    The target `cpu` is one module for each level of this architecture (x86-64-v2, v3 and v4), so that the package
    runs on other machines too; `cpu:NAME` names a processor.

    A package is compiled again for the IREE that is here, with its weights and its state, for the targets and with
    the options that it was made with unless others are given. A signed one needs its key and a key for the new one;
    so does one in --weights.
    """
    options = {"pipeline": pipeline, "precision": precision, "kernels": kernels, "timeout": timeout}
    packages.no_key(graph, key_file, weights)
    if packages.is_package(graph):
        if output is None:
            raise click.UsageError("a package that is compiled again needs -o")
        if weights:
            raise click.UsageError(f"--weights are for graphs; {graph} has its own")
        made = packages.again(graph, key_file, sign_key_file)
        plan = PackagePlan.of(output, targets or made.targets, options, keep_graph, sign_key_file, made.options)
        plan.write(made.program, explain)
        return
    if output is None:
        if graph == "-":
            raise click.UsageError("a graph from stdin needs -o")
        output = str(Path(graph).with_suffix(".lirpkg"))
    plan = PackagePlan.of(output, targets or ("cpu",), options, keep_graph, sign_key_file)
    read = partial(packages.read_for_new, key_file=key_file, sign_key_file=sign_key_file)
    plan.write(files.read_program(graph, weights, whole=True, key_file=key_file, read=read), explain)

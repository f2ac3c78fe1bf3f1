"""`lstm-ir import`: what a foreign model holds, what of it is taken, and the package that is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from lstm_ir.api import compile
from lstm_ir.cli import files, model_options, packages
from lstm_ir.cli.package import PackagePlan
from lstm_ir.importers.kinds import ModelKind, program_of
from lstm_ir.importers.original import Original
from lstm_ir.importers.report import ImportReport
from lstm_ir.importers.streams import analysed
from lstm_ir.ir.errors import LstmIrError
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.printable import safe
from lstm_ir.ir.program import Program
from lstm_ir.passes.pipelines import PRECISIONS
from lstm_ir.verification.compare import Tolerance
from lstm_ir.verification.examine import plan as planned
from lstm_ir.verification.result import Verification
from lstm_ir.verification.streams import verify_frames, verify_parts
from lstm_ir.verification.verify import verify


@click.command("import")
@click.argument("model")
@click.option("-o", "--output", help="Compile too, and write this package (.lirpkg).")
@click.option("-t", "--target", "targets", multiple=True, default=("cpu",), show_default=True,
              help="A target word, repeat it for several; the report says how the first runs recurrences.")  # fmt: skip
@model_options.imported
@click.option("--stateful", is_flag=True, help="Keep between calls what layers and causal windows saw.")
@click.option("--state", "states", multiple=True, help="Keep an input between calls: state=stateN, INPUT=OUTPUT.")
@click.option("--check", is_flag=True, help="Compile for the first target (of cpu the level that runs here), and "
              "compare with the library of the model.")  # fmt: skip
@click.option("--absolute", type=float, help="With --check: a difference may be ABSOLUTE + RELATIVE * the largest "
              "|value| of the output; default of both: 2e-5 for f32.")  # fmt: skip
@click.option("--relative", type=float, help="See --absolute.")
@click.option("-p", "--pipeline", help="Passes to run instead of the target's own.")
@click.option("--precision", type=click.Choice(list(PRECISIONS)),
              help="Weights of products in fewer bits; int8-dynamic: rows too, at each step.")  # fmt: skip
@click.option("--kernels/--no-kernels", default=None,
              help="Recurrence kernels, or StableHLO loops only; default: kernels on CPUs, CUDA and "
              "Vulkan.")  # fmt: skip
@click.option("--timeout", type=float, default=300.0, show_default=True, help="Seconds per target.")
@click.option("--explain", is_flag=True, help="With -o: say what each pass did, and kernel or loop and why.")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
@packages.sign_options
def command(
    model: str, kind: ModelKind | None, importer_options: dict[str, Any], output: str | None, targets: tuple[str, ...],
    stateful: bool, states: tuple[str, ...], check: bool, absolute: float | None, relative: float | None,
    pipeline: str | None, precision: str | None, kernels: bool | None, timeout: float, explain: bool, as_json: bool,
    keep_graph: bool, sign_key_file: str | None,
) -> None:  # fmt: skip
    """Say what MODEL holds, what of it is taken, and how it runs; write a package with -o.

    MODEL: .onnx; .keras, .h5; a SavedModel's folder, .pb, .meta; .pt2. The exit code is 1 where a node is refused,
    or where --check finds a difference.
    """
    if kind is None:
        raise click.UsageError(
            f"{model} is a package already: `lstm-ir show {model} --contents` says what it holds, "
            f"`lstm-ir compile {model} -o NEW.lirpkg` compiles it again"
        )
    if explain and output is None:
        raise click.UsageError("--explain says how -o was compiled: give -o too")
    if stateful and states:
        raise click.UsageError("--stateful finds what is kept, --state names it: give one of them")
    limits = Tolerance(absolute, relative)
    if limits != Tolerance() and not check:
        raise click.UsageError("--absolute and --relative are of a comparison: give --check too")
    written = "report.lirpkg" if output is None else output
    options = {"pipeline": pipeline, "precision": precision, "kernels": kernels, "timeout": timeout}
    plan = PackagePlan.of(written, targets, options, keep_graph, sign_key_file)
    examined = kind.functions().examine(model, **importer_options)
    feedback = model_options.states(states) if states else stateful
    program = not_kept = None
    try:
        program = program_of(kind, model, importer_options, feedback) if examined.report.ok else None
    except LstmIrError as e:  # a stream that looks ahead: what the model holds is shown before the reasons
        not_kept = e
    state = {} if program is None else {name: str(s.type) for name, s in program.state.items()}
    try:
        report = examined.report if examined.graph is None else planned(examined, targets[0], plan.options)
    except LstmIrError:  # the target does not take what the model has: the report stands beside the reason
        _show(examined.report, state, as_json)
        raise
    _show(report, state, as_json)
    if not_kept is not None:
        raise not_kept
    if examined.graph is None or program is None:
        raise click.exceptions.Exit(1)
    if output is not None:
        plan.write(program, explain)
    if check:
        with files.progress(f"comparing with {kind.runs}"):
            original, word = kind.original(model, importer_options), plan.runs_here(targets[0])
            result = _checked(examined.graph, program, feedback, original, plan, word, limits)
        click.echo(safe(result.summary), err=as_json)
        if not result.ok:
            if precision is not None and limits == Tolerance():
                model_options.say_limits(precision)
            raise click.exceptions.Exit(1)


def _show(report: ImportReport, state: Mapping[str, str], as_json: bool) -> None:
    """The report, and what is kept between calls."""
    if as_json:
        click.echo(files.json_text({**report.as_json(), "kept": dict(state)}))
        return
    from lstm_ir.importers.report_text import text  # rich, only where it is drawn

    click.echo(text(report))
    for name, kind in state.items():
        click.echo(safe(f"kept           {name}: {kind}"))


def _checked(
    graph: Graph, program: Program, feedback: bool | Mapping[str, str], original: Original, plan: PackagePlan,
    word: str, limits: Tolerance,
) -> Verification:  # fmt: skip
    """Ours, compiled for `word`, beside the original.

    Calls; in parts, where state was found; frame by frame, where it is named.
    """
    if not feedback:
        with compile(graph, word, options=plan.options) as exe:
            absolute, relative = limits.absolute, limits.relative
            return verify(exe, against=original, absolute=absolute, relative=relative, seconds=0.0, cold=False)
    with compile(program, word, options=plan.options) as exe:
        step = program.entries["step"]
        if isinstance(feedback, Mapping):
            return verify_frames(exe, step, original, feedback, limits)
        return verify_parts(exe, step, original, analysed(graph.name, graph).steps, limits)

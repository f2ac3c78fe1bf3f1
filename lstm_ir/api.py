"""The driver: graph or program -> passes -> StableHLO -> IREE -> executable or package.

The only library module that sees passes and backends (the command line is the other one).
Functions import them when they are called: `compile` needs the compiler, which nobody needs to write a graph. What
loads packages is `loading.py`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lstm_ir.backends.compile.phases import Checks
from lstm_ir.backends.run.threads.choice import choose, may_help
from lstm_ir.ir.called import told as told_words
from lstm_ir.ir.carry_kinds import described, loops_of
from lstm_ir.ir.errors import CompileError, PackageError, TargetError
from lstm_ir.ir.foreign_errors import refusals_become
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.operations import loops, operations
from lstm_ir.ir.output_file import check_folder
from lstm_ir.ir.program import Program
from lstm_ir.ir.work import CallWork
from lstm_ir.options import ALWAYS, OPTIONS, RECORDED, checked, device_word, thresholds, told

if TYPE_CHECKING:
    from lstm_ir.backends.files.packed_graph import Recipe
    from lstm_ir.backends.module import Module
    from lstm_ir.backends.run.executable import Executable
    from lstm_ir.backends.targets.target import Target
    from lstm_ir.passes.pipeline import PassStep

_OTHER_FORMATS = (".onnx", ".pt", ".pth", ".pt2", ".pb", ".h5", ".hdf5", ".keras", ".tflite", ".npz", ".safetensors")


@dataclass
class Report:
    """What happened to a program on its way.

    Passes per entry, how carries of its loops depend on themselves, and kernel or loop per recurrence.
    """

    target: str
    steps: dict[str, tuple[PassStep, ...]] = field(default_factory=dict)
    carries: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    work: dict[str, CallWork] = field(default_factory=dict)
    compile_seconds: float = 0.0
    module_bytes: int = 0

    def __str__(self) -> str:
        lines = [f"target {self.target}"]
        for entry, steps in self.steps.items():
            lines.append(f"entry {entry}")
            for s in steps:
                lines.append(f"  {s.name}: {'changed' if s.changed else 'nothing to do'} ({s.seconds * 1e3:.1f} ms)")
                lines.extend(f"    fired {text}" for text in s.fired)
                lines.extend(f"    left alone: {m}" for m in s.misses)
        lines.extend(self.carries)
        lines.extend(self.notes)
        if self.module_bytes:
            lines.append(f"compiled in {self.compile_seconds:.2f} s, {self.module_bytes} bytes")
        return "\n".join(lines)


@dataclass(frozen=True)
class Lowered:
    """A program made ready for one target: its module's text, and what led to it."""

    program: Program
    optimized: Program  # by the passes
    module: Module
    report: Report
    work: Mapping[str, CallWork]  # of each entry
    always: bool = False  # helpers take part in calls of any size

    @property
    def text(self) -> str:
        """The whole module's."""
        return self.module.text


def optimize(
    program: Program, target: Target | None, report: Report, pipeline: str | None = None,
    kernels: bool | None = None, precision: str | None = None,
) -> Program:  # fmt: skip
    """Every entry through the target's pipeline (or the one given as text).

    kernels: whether loops become kernels, where the caller chose. precision: of the weights of products.
    """
    from lstm_ir.passes.pipeline import Pipeline, for_target

    info = None if target is None else target.info
    chosen = for_target(info) if pipeline is None else Pipeline.parse(pipeline)
    if precision is not None:
        chosen = chosen.with_precision(precision)
    if kernels is not None:
        chosen = chosen.with_kernels(kernels)
    entries: dict[str, Graph] = {}
    for name, graph in program.entries.items():
        result = chosen.run(graph, info)
        report.steps[name] = result.steps
        entries[name] = result.graph
    return replace(program, entries=entries)


def prepare(
    program: Graph | Program, target: Target, options: Mapping[str, Any] | None = None, helpers: bool = False,
    apart: bool = False,
) -> Lowered:  # fmt: skip
    """Everything up to the compiler.

    helpers: whether processes that call it may have some. apart: no op shares a dispatch with another.
    """
    from lstm_ir.backends.emit.options import Options
    from lstm_ir.backends.kernels.body.products import publishable
    from lstm_ir.backends.module import iree_module

    given = checked(options)
    report = Report(target.info.name)
    source = Program.of(program)
    source.verify()
    info = target.info
    made = optimize(source, target, report, given.get("pipeline"), given.get("kernels"), given.get("precision"))
    report.carries = [f"scan at {x.node.loc}: {described(x)}" for g in made.entries.values() for x in loops_of(g)]
    kernels, always = given.get("kernels", info.kernels), given.get("helpers") == ALWAYS
    helpers = helpers and info.kind == "cpu" and kernels and given.get("helpers", True) is not False
    before = {n: CallWork(operations(g), loops(g), publishable(g)) for n, g in made.entries.items()}
    helped = [n for n, w in before.items() if helpers and may_help(w.known(), w.loops, w.published, always=always)]
    made_with = Options(kernels, apart=apart, thresholds=thresholds(given))
    module = iree_module(made, info, made_with, report.notes, helped)
    report.work = {n: w._replace(published=module.published.get(n, 0)) for n, w in before.items()}
    return Lowered(source, made, module, report, report.work, always)


@told(OPTIONS)
@refusals_become(CompileError, "compile")
def compile(
    program: Graph | Program, target: str = "cpu", device: str | None = None, options: Mapping[str, Any] | None = None
) -> Executable:
    """A callable for `target`: `cpu`, `cpu:x86-64-v3`, `vulkan`, `cuda:sm_89`, `hip:gfx942`,
    `metal`, …

    options: pipeline (text), precision (of the weights of products: "bf16", "f16", "int8" or "int8-dynamic"; default:
    their own), kernels (default: on CPUs, CUDA and Vulkan), helpers (default: True; "always": in
    calls of any size), opt_level, data_tiling, flags, timeout (seconds), cache, verify (IREE's checks after
    its passes), schedule_caller (default: on; as in `load`), thresholds (sizes at which kernels take another form).
    device: as in `vulkan:1`; on the CPU `local-sync` (the caller's thread) or `local-task` (workers),
    by default chosen at each call by its size: in between helper threads take part in what the caller's
    thread runs.
    Raises TargetError, LoweringError, PassError or CompileError.
    """
    from lstm_ir.backends.run import runtime
    from lstm_ir.backends.run.devices import resolve
    from lstm_ir.backends.run.executable import Executable
    from lstm_ir.backends.run.loaded import CallOptions

    program = Program.of(program, "compile")
    given = checked(options)
    device_word(device)
    where = resolve(target)
    if not where.drivers:
        raise TargetError(f"target {where.info.name} can be compiled and exported here, not run: no driver for it")
    chosen = device is None and where.info.kind == "cpu"
    threads = runtime.threads()
    lowered, blob = build(program, where, given, helpers=chosen and threads > 1)
    weights = {n: d.array for n, d in lowered.program.weights.items()}
    start = {n: s.initial.array for n, s in lowered.program.state.items()}
    signature, report = lowered.program.signature(lowered.optimized), lowered.report
    if chosen:
        report.notes += _drivers(lowered, threads)
    return Executable(
        signature, blob, weights, where, device, report,
        state=start, work=lowered.work if chosen else None,
        options=CallOptions(given.get("schedule_caller", True), always=lowered.always),
    )  # fmt: skip


def _drivers(lowered: Lowered, threads: int) -> list[str]:
    """Who runs the calls of each entry, as `--explain` says it."""
    notes = []
    for name, w in lowered.work.items():
        where = f" of {name}" if len(lowered.work) > 1 else ""
        if w.known() is None and threads > 1:
            notes.append(f"driver{where} chosen at each call: {w.operations} operations")
        else:
            choice = choose(w.known(), w.loops, w.published, threads, always=lowered.always)
            notes.append(str(choice).replace("driver", f"driver{where}", 1))
    return notes


@refusals_become(CompileError, "compile")
def build(
    program: Graph | Program, target: Target, options: Mapping[str, Any] | None = None, helpers: bool = False
) -> tuple[Lowered, bytes]:
    """The lowered program and its compiled module; `helpers` as in `prepare`.

    A module that the compiler refuses in every way is lowered again, in dispatches of one op each or without
    kernels: IREE 3.13 fails on some ops that it fuses.
    """
    from lstm_ir.backends.compile.compiler_errors import CompilerError, CompilerRefusedError
    from lstm_ir.compile_advice import CHOSEN, advice

    given = checked(options)
    lowered = prepare(program, target, given, helpers)
    try:
        return lowered, _compiled(lowered, target, given)
    except CompilerError as e:
        if CHOSEN & set(given) or not isinstance(e, CompilerRefusedError):
            raise e.with_advice(advice(e, lowered.optimized, lowered.report.notes, given)) from None
        for words, apart, other in _LAST_WAYS:
            if other and "kernels" in given:
                continue
            again = prepare(program, target, {**given, **other}, helpers, apart)
            with suppress(CompilerRefusedError):
                blob = _compiled(again, target, given)
                again.report.notes.append(f"compiled {words}, because IREE refuses it otherwise: {e.reason}")
                return again, blob
        raise e.with_advice(advice(e, lowered.optimized, lowered.report.notes, given)) from None


_LAST_WAYS: tuple[tuple[str, bool, dict[str, Any]], ...] = (
    ("with each op apart", True, {}),
    ("without kernels", False, {"kernels": False}),
    ("without kernels, with each op apart", True, {"kernels": False}),
)
"""How a module is lowered that the compiler refuses in every way: slower code, and what `--explain` says of it."""


def _compiled(lowered: Lowered, target: Target, options: Mapping[str, Any]) -> bytes:
    """The module of what was lowered; its report gains how long it took."""
    from lstm_ir.backends.compile.compiler import compile_mlir

    passed: dict[str, Any] = {k: options[k] for k in ("opt_level", "data_tiling", "flags") if k in options}
    start = time.perf_counter()
    blob = compile_mlir(
        lowered.module.declared,
        target,
        name=lowered.program.name,
        timeout=options.get("timeout", 300.0),
        options=passed,
        use_cache=options.get("cache", True),
        notes=lowered.report.notes,
        checks=Checks.PASSES if options.get("verify", target.info.kind != "cpu") else Checks.PHASES,
        functions=lowered.module.functions,
    )
    lowered.report.compile_seconds = time.perf_counter() - start
    lowered.report.module_bytes = len(blob)
    return blob


@told_words({"level": "pipeline"})
@refusals_become(CompileError, "lower")
def lower(program: Graph | Program, *, pipeline: str | None = None, locs: bool = False) -> str:
    """StableHLO text; weights are arguments after the inputs, in the order of `Graph.weights`.

    Static graphs give StableHLO alone; named sizes add `tensor`, `arith` and `scf`.
    """
    from lstm_ir.backends.module import stablehlo_text

    if not isinstance(locs, bool):
        raise CompileError(f"locs is {locs!r:.80}; expected True or False")
    given = checked({"pipeline": pipeline})
    source = Program.of(program, "lower")
    source.verify()
    made = optimize(source, None, Report("stablehlo"), given["pipeline"])
    return stablehlo_text(made, source, locs)


@told(OPTIONS)
@refusals_become(CompileError, "export")
def export(
    program: Graph | Program,
    path: str | Path,
    targets: Sequence[str] = ("cpu",),
    options: Mapping[str, Any] | None = None,
    *,
    graph: bool = True,
    sign_key: bytes | str | None = None,
) -> Path:
    """Write a `.lirpkg` with one module per target and the weights once.

    `cpu` is one module for each level of this architecture (x86-64-v2, v3 and v4; with precision int8-dynamic one with
    VNNI too); the loader takes the best.
    graph: the graph's text goes into the package too, so that it can be compiled again (`source`) for another
    target or a later IREE. sign_key: the secret that `load(..., require_key=)` asks for.
    """
    program = Program.of(program, "export")
    if isinstance(targets, str):
        targets = [targets]
    if not targets:
        raise TargetError("export needs at least one target")
    if str(path).lower().endswith(_OTHER_FORMATS):
        raise CompileError(f"{path}: export writes packages of this project, no other format; name it .lirpkg")
    given = checked(options)
    chosen = places(targets, given)
    with refusals_become(PackageError, str(path)):
        check_folder(path)
    modules = {word: (where, *build(program, where, given, helpers=True)) for word, where in chosen.items()}
    if not isinstance(graph, bool):
        raise CompileError(f"graph is {graph!r:.80}; expected True or False")
    recipe = recorded(targets, {} if options is None else options) if graph else None
    write_modules(path, Program.of(program), modules, recipe, sign_key)
    return Path(path)


def recorded(targets: Sequence[str], options: Mapping[str, Any]) -> Recipe:
    """What a package keeps of how it was compiled. Its words name the same targets elsewhere, but for `cpu:host`."""
    from lstm_ir.backends.files.packed_graph import Recipe
    from lstm_ir.backends.run.devices import resolve

    words = [w if w in ("cpu", "cpu:host") else resolve(w).info.name for w in targets]
    kept = {k: options[k] for k in RECORDED if k in options}
    plain = {k: dict(v) if isinstance(v, Mapping) else v for k, v in kept.items()}
    return Recipe(tuple(dict.fromkeys(words)), plain)


def places(targets: Sequence[str], options: Mapping[str, Any]) -> dict[str, Target]:
    """The targets of a package by their words, each target once; TargetError for a word that is none.

    Of several words for one target, as `cuda:sm_89` and `cuda:sm_90`, the first stands. `cpu` stands for the
    levels of this architecture, so that the package runs on other machines too, and well.
    """
    from lstm_ir.backends.run.devices import resolve
    from lstm_ir.backends.targets.targets import portable

    found: dict[str, Target] = {}
    levels = portable(precision=options.get("precision"))
    for word in targets:
        named = {t.info.name: t for t in levels} if word == "cpu" else {word: resolve(word)}
        have = {t.info.name for t in found.values()}
        found |= {w: t for w, t in named.items() if t.info.name not in have}
    return found


def write_modules(
    path: str | Path, source: Program, modules: Mapping[str, tuple[Target, Lowered, bytes]],
    recipe: Recipe | None = None, sign_key: bytes | str | None = None,
) -> None:  # fmt: skip
    """A package with what `build` made of `source` for each target, its weights and state once, and with `recipe` the
    graph's text.
    """
    from lstm_ir.backends.files.packed_graph import PackedGraph
    from lstm_ir.backends.run.package import ModuleFile, write_package

    signature = source.signature(*(lowered.optimized for _, lowered, _ in modules.values()))
    held = {word: ModuleFile(where, blob, lowered.work) for word, (where, lowered, blob) in modules.items()}
    weights = {n: d.array for n, d in source.weights.items()}
    start = {n: s.initial.array for n, s in source.state.items()}
    graph = None if recipe is None else PackedGraph.of(source, recipe.targets, recipe.options)
    write_package(path, signature, held, weights, state=start, graph=graph, sign_key=sign_key)

"""`lstm-ir bench`: this project beside torch, onnxruntime and JAX."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any, NamedTuple

import click
from rich.console import Console

from lstm_ir.bench import fma_peak, levels, lists, report
from lstm_ir.bench import measure as bench
from lstm_ir.bench import memory as bench_memory
from lstm_ir.bench.measure import NAMES, WAYS, DifferentError, NoPeerError, Result
from lstm_ir.bench.points import grid
from lstm_ir.bench.runs import joined, save
from lstm_ir.bench.subject import Subject
from lstm_ir.cli.files import OutputFile, write_text
from lstm_ir.ir.errors import LstmIrError
from lstm_ir.loading import set_threads
from lstm_ir.measurement.machine import cores, machine, product_peak
from lstm_ir.measurement.side_by_side import OURS


@click.command("bench")
@click.argument("words", nargs=-1)
@click.option("--all", "every", is_flag=True, help="the named list instead of the short one")
@click.option("--models", is_flag=True, help="whole models instead of layers, streams and convolutions")
@click.option("--full", is_flag=True, help="the whole grid, cheap points first, within --budget")
@click.option("--budget", default=3600.0, show_default=True, help="seconds that --full may take")
@click.option("--seconds", default=1.0, show_default=True, help="spent on each runner of a point in each run")
@click.option("--runs", default=1, show_default=True, type=click.IntRange(1), help="runs of the whole list, in turn")
@click.option("--target", default="cpu", show_default=True, help="of this project: cpu, cpu:x86-64-v3, …")
@click.option("--threads", type=int, default=None, help="of this project, torch and onnxruntime; default: all usable")
@click.option("--memory", is_flag=True, help="also peak memory, each in a fresh process")
@click.option("-o", "--output", type=OutputFile(), help="figures as JSON")
@click.option("--table", type=OutputFile(), help="figures as a Markdown table")
@click.option("--svg", type=OutputFile(), help="ratios as a picture")
@click.option("--list", "only_list", is_flag=True, help="name the points and stop")
def command(
    words: tuple[str, ...], every: bool, models: bool, full: bool, budget: float, seconds: float, runs: int,
    target: str, threads: int | None, memory: bool, output: str | None, table: str | None, svg: str | None,
    only_list: bool,
) -> None:  # fmt: skip
    """Measure the points whose name is, or else contains, one of WORDS (a short list without),
    interleaved with every peer that is here: with named sizes, with numbers, and from a package with named sizes
    in a process of its own.

    The ratio is the fastest peer's median by ours: above 1 is faster than every peer. With --runs the figures are
    medians over the runs, with their spread. Nothing else should run.
    """
    lists_asked = [option for option, asked in (("--all", every), ("--models", models), ("--full", full)) if asked]
    if len(lists_asked) > 1:
        raise click.UsageError(f"{' and '.join(lists_asked)} are lists of their own: give one of them")
    points = list(_chosen(words, every, models, full))
    if not points:
        raise LstmIrError(f"no point's name contains {' or '.join(words)}; --list names them")
    if only_list:
        click.echo("\n".join(p.name for p in points))
        return
    console = Console(highlight=False, soft_wrap=True)
    said = levels.hold(target, threads)
    if threads is not None:
        set_threads(threads)
    about = _about(target, threads, runs, said)
    for line in about.pop("said"):
        console.print(line)
    end = time.monotonic() + (budget if full else float("inf"))
    found: dict[str, list[dict[str, Any]]] = {}
    left_out: dict[str, None] = {}
    wrong: dict[str, None] = {}
    for run in range(runs):
        if runs > 1:
            console.print(f"run {run + 1} of {runs}")
        for point in points:
            if time.monotonic() > end:
                left_out[point.name] = None
                continue
            options = _Options(seconds, threads, target, memory and run == 0, run > 0)
            try:
                one = _one(point, options, about["peak_gflops"], console.print)
            except NoPeerError as e:
                if run == 0:
                    console.print(f"left out, {e}")
                continue
            except DifferentError as e:
                console.print(f"left out, {e}")
                wrong[point.name] = None
                continue
            found.setdefault(point.name, []).append(one.as_json())
            if output is not None:
                save([joined(r) for r in found.values()], output, about)
    if not found and not wrong:
        raise LstmIrError("nothing was measured: no peer for these points is installed")
    figures = [joined(r) for r in found.values()]
    if left_out:
        console.print(f"left out, out of budget: {', '.join(left_out)}")
    _summary(figures, console.print)
    if figures:
        _pictures(figures, about, table, svg)
    if wrong:
        raise LstmIrError(f"runners differ in their results: {', '.join(wrong)}")


def _chosen(words: tuple[str, ...], every: bool, models: bool, full: bool) -> Iterable[Subject]:
    if models:
        return lists.named(words, lists.MODELS)
    if full:
        return lists.named(words, tuple(grid()))
    return lists.named(words) if every or words else lists.short()


def _about(target: str, threads: int | None, runs: int, held: str) -> dict[str, Any]:
    """What stands beside the figures; `said`: the same in lines."""
    used = cores() if threads is None else threads
    about: dict[str, Any] = {"machine": machine(), "versions": _versions(), "target": target, "threads": used}
    about |= {"runs": runs, "held": held}
    about["product_gflops"] = product_peak(used)
    about["peak_gflops"] = fma_peak.gflops(target, used)
    about["empty_call_us"] = {d: round(t * 1e6, 1) for d, t in bench.empty_call().items()}
    shown = ", ".join(f"{t} us by {d}" for d, t in about["empty_call_us"].items())
    at = f"target {target}, {used} threads" + (f"; {held}" if held else "")
    peaks = f"{about['peak_gflops']:.0f} GFLOP/s; NumPy's f32 product: {about['product_gflops']:.0f} GFLOP/s"
    about["said"] = [
        about["machine"], about["versions"], at, f"peak of multiply-adds in registers: {peaks}",
        f"an empty call, NumPy to NumPy: {shown}",
    ]  # fmt: skip
    return about


class _Options(NamedTuple):
    seconds: float
    threads: int | None
    target: str
    memory: bool
    cache: bool


def _one(point: Subject, options: _Options, peak: float, say: Callable[[str], None]) -> Result:
    r = bench.measure(point, options.seconds, options.threads, target=options.target, cache=options.cache)
    t = r.times
    ours = "  ".join(f"{w} {t.median(w) * 1e3:.3f}" for w in r.ways)
    others = "  ".join(f"{w} {t.median(w) * 1e3:.3f}" for w in t.seconds if w not in r.ways)
    ratios = " ".join(f"{r.beside_peers(w).ratio:.2f}" for w in r.ways)
    low, high = r.beside_peers(NAMES).interval()
    made = "" if options.cache else f"  made in {' '.join(f'{s:.1f}' for s in r.compile_seconds.values())} s"
    say(
        f"{point.name:34} {ours} ms  {others}  ratios {ratios} [{low:.2f}, {high:.2f}]  "
        f"{r.gflops(NAMES):.0f} GFLOP/s ({r.gflops(NAMES) / peak:.0%})  error {max(r.errors.values()):.0e}{made}"
    )
    for who, why in r.missing.items():
        say(f"{'':34} without {who}: {why}")
    if options.memory:
        runners = (OURS, *(w for w in t.seconds if w not in r.ways))
        r.memory = {w: bench_memory.measure(point, w, options.target, options.threads) for w in runners}
        shown = ", ".join(f"{w} {m >> 20} MiB" for w, m in r.memory.items())
        say(f"{'':34} memory {shown}")
    return r


def _summary(figures: list[dict[str, Any]], say: Callable[[str], None]) -> None:
    """The geometric mean of each group and way, and who is slower."""
    for group in dict.fromkeys(f["group"] for f in figures):
        part = [f for f in figures if f["group"] == group]
        for way in WAYS:
            slower = ", ".join(f["point"] for f in part if f["slower"][way]) or "none"
            mean = bench.geometric_mean(f["ratio"][way] for f in part)
            say(f"{group}, {way}: geometric mean of {len(part)} ratios {mean:.2f}; slower: {slower}")


def _pictures(points: list[dict[str, Any]], about: dict[str, Any], table: str | None, svg: str | None) -> None:
    if table is not None:
        peaks = f"peak {about['peak_gflops']:.0f} GFLOP/s, NumPy's product {about['product_gflops']:.0f}"
        at = f"target {about['target']}, {about['threads']} threads" + (f"; {about['held']}" if about["held"] else "")
        head = f"{about['machine']}; {about['versions']}; {at}; {peaks}\n\n"
        text = head + report.table(points, about["peak_gflops"])
        write_text(table, text)
    if svg is not None:
        title = (
            "time of the fastest peer by ours (right of 1: faster); blue infers, brown trains; "
            "dot: named sizes, ring: numbers, square: package"
        )
        write_text(svg, report.picture(points, title))


def _versions() -> str:
    names = ("lstm-ir", "iree-base-runtime", "torch", "onnxruntime", "jax")
    found = []
    for n in names:
        try:
            found.append(f"{n} {metadata.version(n)}")
        except metadata.PackageNotFoundError:
            found.append(f"{n} not installed")
    return ", ".join(found)

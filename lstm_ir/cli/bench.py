"""`lstm-ir bench`: this project beside torch, onnxruntime and JAX."""

from __future__ import annotations

import time
from collections.abc import Iterable
from importlib import metadata
from typing import Any

import click
from rich.console import Console

from lstm_ir.bench import measure as bench
from lstm_ir.bench import memory as bench_memory
from lstm_ir.bench import report
from lstm_ir.bench.measure import NAMES, WAYS, NoPeerError, PointResult
from lstm_ir.bench.points import Point, grid, named, short
from lstm_ir.cli.files import write_text
from lstm_ir.ir.errors import LstmIrError
from lstm_ir.loading import set_threads
from lstm_ir.measurement.machine import machine, peak
from lstm_ir.measurement.side_by_side import OURS


@click.command("bench")
@click.argument("words", nargs=-1)
@click.option("--all", "every", is_flag=True, help="the named list instead of the short one")
@click.option("--full", is_flag=True, help="the whole grid, cheap points first, within --budget")
@click.option("--budget", default=3600.0, show_default=True, help="seconds that --full may take")
@click.option("--seconds", default=1.0, show_default=True, help="spent on each runner of a point")
@click.option("--threads", type=int, default=None, help="of this project, torch and onnxruntime; default: all usable")
@click.option("--memory", is_flag=True, help="also peak memory, each in a fresh process")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="figures as JSON")
@click.option("--table", type=click.Path(dir_okay=False), help="figures as a Markdown table")
@click.option("--svg", type=click.Path(dir_okay=False), help="ratios as a picture")
@click.option("--list", "only_list", is_flag=True, help="name the points and stop")
def command(
    words: tuple[str, ...], every: bool, full: bool, budget: float, seconds: float,
    threads: int | None, memory: bool, output: str | None, table: str | None, svg: str | None,
    only_list: bool,
) -> None:  # fmt: skip
    """Measure the points whose name is, or else contains, one of WORDS (a short list without),
    interleaved with every peer that is here: with named sizes, with numbers, and from a package with named sizes
    in a process of its own.

    The ratio is the fastest peer's median by ours: above 1 is faster than every peer. Nothing else
    should run.
    """
    points = list(grid() if full else short())
    if every or (words and not full):
        points = list(named(words))
    if not points:
        raise LstmIrError(f"no point's name contains {' or '.join(words)}; --list names them")
    if only_list:
        click.echo("\n".join(p.name for p in points))
        return
    if threads is not None:
        set_threads(threads)
    console = Console(highlight=False, soft_wrap=True)
    about: dict[str, Any] = {"machine": machine(), "versions": _versions(), "peak_gflops": peak()}
    console.print(f"{about['machine']}\n{about['versions']}")
    console.print(f"NumPy's f32 product: {about['peak_gflops']:.0f} GFLOP/s")
    about["empty_call_us"] = {d: round(t * 1e6, 1) for d, t in bench.empty_call().items()}
    shown = ", ".join(f"{t} us by {d}" for d, t in about["empty_call_us"].items())
    console.print(f"an empty call, NumPy to NumPy: {shown}")
    end = time.monotonic() + (budget if full else float("inf"))
    results: list[PointResult] = []
    seen = 0
    for point in _until(points, end):
        seen += 1
        try:
            found = _one(point, seconds, threads, memory, about["peak_gflops"], console.print)
        except NoPeerError as e:
            console.print(f"left out, {e}")
            continue
        results.append(found)
        if output is not None:
            bench.save(results, output, **about)
    if not results:
        raise LstmIrError("nothing was measured: no peer for these points is installed")
    _pictures([r.as_json() for r in results], about, table, svg)
    left_out = points[seen:]
    if left_out:
        console.print(f"left out, out of budget: {', '.join(p.name for p in left_out)}")
    for training in (False, True):
        part = [r for r in results if r.point.training is training]
        for way in WAYS if part else ():
            slower = ", ".join(r.point.name for r in part if r.slower(way)) or "none"
            mean = bench.geometric_mean(r.beside_peers(way).ratio for r in part)
            kind = "training" if training else "inference"
            console.print(f"{kind}, {way}: geometric mean of {len(part)} ratios {mean:.2f}; slower: {slower}")


def _until(points: Iterable[Point], end: float) -> Iterable[Point]:
    for p in points:
        if time.monotonic() > end:
            return
        yield p


def _one(point: Point, seconds: float, threads: int | None, memory: bool, peak: float, say: Any) -> PointResult:
    r = bench.measure(point, seconds, threads)
    t = r.times
    ours = "  ".join(f"{w} {t.median(w) * 1e3:.3f}" for w in r.ways)
    others = "  ".join(f"{w} {t.median(w) * 1e3:.3f}" for w in t.seconds if w not in r.ways)
    ratios = " ".join(f"{r.beside_peers(w).ratio:.2f}" for w in r.ways)
    low, high = r.beside_peers(NAMES).interval()
    say(
        f"{point.name:34} {ours} ms  {others}  ratios {ratios} [{low:.2f}, {high:.2f}]  "
        f"{r.gflops(NAMES):.0f} GFLOP/s ({r.gflops(NAMES) / peak:.0%})  error {max(r.errors.values()):.0e}  "
        f"made in {' '.join(f'{s:.1f}' for s in r.compile_seconds.values())} s"
    )
    if memory:
        r.memory = {w: bench_memory.measure(point, w) for w in (OURS, *(w for w in t.seconds if w not in r.ways))}
        shown = ", ".join(f"{w} {m >> 20} MiB" for w, m in r.memory.items())
        say(f"{'':34} memory {shown}")
    return r


def _pictures(points: list[dict[str, Any]], about: dict[str, Any], table: str | None, svg: str | None) -> None:
    if table is not None:
        head = f"{about['machine']}; {about['versions']}; peak {about['peak_gflops']:.0f} GFLOP/s\n\n"
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

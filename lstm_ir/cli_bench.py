"""`lstm-ir bench`: this project beside torch, onnxruntime and JAX."""

from __future__ import annotations

import platform
from importlib import metadata

import click


@click.command("bench")
@click.argument("words", nargs=-1)
@click.option("--seconds", default=1.0, show_default=True, help="spent on each runner of a point")
@click.option(
    "--threads",
    type=int,
    default=None,
    help="of this project, torch and onnxruntime; default: all usable",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="figures as JSON")
@click.option("--list", "only_list", is_flag=True, help="name the points and stop")
def command(
    words: tuple[str, ...], seconds: float, threads: int | None, output: str | None, only_list: bool
) -> None:
    """Measure the points whose name contains one of WORDS (all without), interleaved with every
    peer that is here.

    The ratio is the fastest peer's median by ours: above 1 is faster than every peer. Nothing else
    should run.
    """
    from rich.console import Console

    from lstm_ir.bench import geometric_mean, measure, peak, save
    from lstm_ir.bench_points import choose

    points = choose(words)
    if not points:
        raise click.ClickException(
            f"no point's name contains {' or '.join(words)}; --list names them"
        )
    console = Console(highlight=False, soft_wrap=True)
    if only_list:
        for p in points:
            console.print(p.name)
        return
    if threads is not None:
        from lstm_ir.api import set_threads

        set_threads(threads)
    about = {
        "machine": platform.processor() or platform.machine(),
        "versions": _versions(),
        "peak_gflops": peak(threads),
    }
    console.print(f"{about['versions']}\nNumPy's f32 product: {about['peak_gflops']:.0f} GFLOP/s")
    results = []
    for p in points:
        try:
            r = measure(p, seconds, threads)
        except ImportError as e:
            raise click.ClickException(str(e)) from None
        results.append(r)
        low, high = r.interval()
        others = "  ".join(f"{w} {r.median(w) * 1e3:.3f}" for w in r.seconds if w != "lstm-ir")
        console.print(
            f"{p.name:34} {r.median('lstm-ir') * 1e3:9.3f} ms  {others}  ratio {r.ratio:.2f} [{low:.2f}, {high:.2f}]  "
            f"{p.flops / r.median('lstm-ir') / 1e9:.0f} GFLOP/s  error {r.error:.0e}  made in {r.compile_seconds:.1f} s"
        )
        if output is not None:
            save(results, output, **about)
    console.print(
        f"geometric mean of {len(results)} ratios: {geometric_mean(r.ratio for r in results):.2f}"
    )


def _versions() -> str:
    names = ("lstm-ir", "iree-base-runtime", "torch", "onnxruntime", "jax")
    found = []
    for n in names:
        try:
            found.append(f"{n} {metadata.version(n)}")
        except metadata.PackageNotFoundError:
            found.append(f"{n} not here")
    return ", ".join(found)

"""Calls beside busy neighbours, several processes at once, and long runs: ours beside onnxruntime.

    pip install 'lstm-ir[oracles]'
    python benchmarks/neighbours.py -o neighbours.json --table neighbours.md

busy: N processes that only compute, N = 0, 2, 4, 6; a point by ours with named sizes and with numbers, and by
onnxruntime, in turns of one process: median and 95th percentile over --calls calls each. processes: k processes, each
with an executable of its own, call for --seconds; calls per second of all, against k processes of onnxruntime. long:
--long calls in a row, from one thread and from eight, whose steps and rows change with each call: the median latency
of the last thousand by that of the first, and what the resident memory grew by. The last two run without neighbours.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np

import lstm_ir as li
from lstm_ir.bench.lists import POINTS
from lstm_ir.bench.points import Point
from lstm_ir.bench.subject import BenchCall, TimedRun
from lstm_ir.cli.files import OutputFile
from lstm_ir.measurement.machine import cores, machine
from lstm_ir.measurement.side_by_side import Here, Times

NAMES, NUMBERS, ONNX = RUNNERS = ("names", "numbers", "onnxruntime")
BUSY = (0, 2, 4, 6)
PROCESSES = (1, 2, 4)
SIZES = tuple(
    Point("lstm", *sizes)
    for sizes in ((1, 1, 256, 256), (20, 1, 128, 128), (20, 8, 128, 128), (57, 3, 144, 144), (100, 1, 256, 256),
                  (100, 16, 128, 128))
)  # fmt: skip
LONG = Point("lstm", 40, 4, 64, 128)  # the most steps and rows of the long run
Figures = dict[str, Any]
spawn = multiprocessing.get_context("spawn")


def runner(point: Point, who: str, threads: int) -> TimedRun:
    """A runner of the point here."""
    if who == ONNX:
        made = point.peers()[ONNX](threads)
        assert made is not None
        return made
    return point.runner(li.compile(point.program(names=who == NAMES)))


# -- busy neighbours


def _neighbour() -> None:
    """Arithmetic in one thread that stays in its caches: elementwise, so that no BLAS takes more threads.

    A parent that is killed ends no process: this one looks whether it is there.
    """
    a, parent = np.random.default_rng(0).standard_normal(4096, np.float32), os.getppid()
    while os.getppid() == parent:
        for _ in range(1000):
            a = np.tanh(a) + 0.1


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """So many processes that compute, one thread each."""
    made = [spawn.Process(target=_neighbour, daemon=True) for _ in range(count)]
    for p in made:
        p.start()
    try:
        time.sleep(2.0 if count else 0.0)  # until all of them have imported NumPy
        yield
    finally:
        for p in made:
            p.terminate()
        for p in made:
            p.join()


def beside(point: Point, count: int, calls: int) -> Figures:
    """Medians and 95th percentiles of the three runners beside `count` neighbours, in ms."""
    inputs, threads = point.calls(), cores()
    sides = {w: Here(runner(point, w, threads).run, inputs) for w in RUNNERS}
    for side in sides.values():
        side.warm()
    times: dict[str, list[float]] = {w: [] for w in RUNNERS}
    with neighbours(count):
        turn = 0
        while min(map(len, times.values())) < calls:
            for k in range(len(RUNNERS)):
                who = RUNNERS[(k + turn) % len(RUNNERS)]
                times[who] += sides[who].turn(turn)
            turn += 1
    found = Times({w: np.array(t[:calls]) for w, t in times.items()})
    out: Figures = {"point": point.name, "busy": count, "calls": calls}
    for w, t in found.seconds.items():
        out[w] = {"median_ms": found.median(w) * 1e3, "p95_ms": float(np.quantile(t, 0.95)) * 1e3}
    for w in (NAMES, NUMBERS):
        out[f"{w}_by_onnxruntime"] = {k[:-3]: out[w][k] / out[ONNX][k] for k in ("median_ms", "p95_ms")}
    return out


# -- several processes


def _client(point: Point, who: str, threads: int, seconds: float, ready: Any, go: Any, found: Any) -> None:
    run, inputs = runner(point, who, threads).run, point.calls()
    for call in inputs:
        run(call)
    ready.release()
    go.wait()
    end, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        run(inputs[count % len(inputs)])
        count += 1
    found.put(count)


def throughput(point: Point, who: str, processes: int, seconds: float, threads: int | None = None) -> float:
    """Calls per second of so many processes together, each with an executable of its own."""
    ready, go, found = spawn.Semaphore(0), spawn.Event(), spawn.Queue()
    used = cores() if threads is None else threads
    given = (point, who, used, seconds, ready, go, found)
    made = [spawn.Process(target=_client, args=given, daemon=True) for _ in range(processes)]
    for p in made:
        p.start()
    for _ in made:
        while not ready.acquire(timeout=1.0):
            dead = [q for q in made if q.exitcode not in (None, 0)]
            if dead:
                raise RuntimeError(f"a process of {who} ended with code {dead[0].exitcode}")
    go.set()
    counts = [found.get(timeout=seconds + 60) for _ in made]
    for p in made:
        p.join()
    return sum(counts) / seconds


def side_by_side(point: Point, processes: int, seconds: float, rounds: int) -> Figures:
    """Throughput of ours and onnxruntime's, in turns; medians of the rounds."""
    rates: dict[str, list[float]] = {w: [] for w in RUNNERS}
    for turn in range(rounds):
        for k in range(len(RUNNERS)):
            who = RUNNERS[(k + turn) % len(RUNNERS)]
            rates[who].append(throughput(point, who, processes, seconds))
    middle = {w: float(np.median(r)) for w, r in rates.items()}
    by = {f"{w}_by_onnxruntime": middle[w] / middle[ONNX] for w in (NAMES, NUMBERS)}
    return {"point": point.name, "processes": processes, "calls_per_second": middle, **by}


# -- long runs


def long_run(who: str, threads: int, calls: int) -> Figures:
    """Latency of the first and the last tenth of the calls, and the memory between their ends, whose sizes change."""
    rng = np.random.default_rng(0)
    sizes = [
        (int(t), int(b)) for t, b in zip(rng.integers(1, LONG.T + 1, 97), rng.integers(1, LONG.B + 1, 97), strict=True)
    ]
    inputs = [BenchCall({"x": rng.standard_normal((t, b, LONG.I), np.float32)}, 0) for t, b in sizes]
    run = runner(LONG, who, cores()).run
    for call in inputs:
        run(call)
    each, times = calls // threads, np.zeros((threads, calls // threads))

    def client(k: int) -> None:
        for n in range(each):
            call = inputs[(n + 13 * k) % len(inputs)]
            start = time.perf_counter()
            run(call)
            times[k, n] = time.perf_counter() - start

    part = max(each // 10, 1)
    held: list[int] = []
    with ThreadPoolExecutor(threads) as pool:
        held.append(resident())
        list(pool.map(client, range(threads)))
    held.append(resident())
    first, last = (float(np.median(t)) for t in (times[:, :part], times[:, -part:]))
    return {
        "runner": who, "threads": threads, "calls": each * threads, "first_ms": first * 1e3, "last_ms": last * 1e3,
        "drift": last / first, "p95_ms": float(np.quantile(times, 0.95)) * 1e3,
        "grown_mib": (held[1] - held[0]) / (1 << 20),
    }  # fmt: skip


def resident() -> int:
    """Resident bytes of this process now."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(t.split()[1]) for t in lines if t.startswith("VmRSS"))


def _in_a_process(what: Callable[..., Figures], *given: Any) -> Figures:
    """The result of `what` in a fresh process."""
    with spawn.Pool(1) as pool:
        return pool.apply(what, given)


# -- the command


def tables(found: dict[str, list[Figures]]) -> str:
    """All three as Markdown."""
    out = []
    if found["busy"]:
        out += ["| point | busy | names ms (95 %) | numbers ms (95 %) | onnxruntime ms (95 %) | names by onnxruntime "
                "(95 %) | numbers by onnxruntime (95 %) |", "|---|---|---|---|---|---|---|"]  # fmt: skip
    for f in found["busy"]:
        ms = [f"{f[w]['median_ms']:.3g} ({f[w]['p95_ms']:.3g})" for w in RUNNERS]
        by = [f"{f[k]['median']:.2f} ({f[k]['p95']:.2f})" for k in (f"{w}_by_onnxruntime" for w in (NAMES, NUMBERS))]
        out.append(f"| {f['point']} | {f['busy']} | {' | '.join([*ms, *by])} |")
    if found["processes"]:
        heads = "| point | processes | names calls/s | numbers calls/s | onnxruntime calls/s "
        out += ["", f"{heads}| names by onnxruntime | numbers by onnxruntime |", "|---|---|---|---|---|---|---|"]
    for f in found["processes"]:
        rates = [f"{f['calls_per_second'][w]:.0f}" for w in RUNNERS]
        by = [f"{f[f'{w}_by_onnxruntime']:.2f}" for w in (NAMES, NUMBERS)]
        out.append(f"| {f['point']} | {f['processes']} | {' | '.join([*rates, *by])} |")
    if found["long"]:
        out += ["", "| runner | threads | calls | first tenth ms | last tenth ms | last by first | memory grown MiB |",
                "|---|---|---|---|---|---|---|"]  # fmt: skip
    for f in found["long"]:
        times = f"{f['first_ms']:.3g} | {f['last_ms']:.3g} | {f['drift']:.2f}"
        out.append(f"| {f['runner']} | {f['threads']} | {f['calls']} | {times} | {f['grown_mib']:.1f} |")
    return "\n".join(out) + "\n"


@click.command()
@click.option("--calls", default=2000, show_default=True, help="of each runner at each point beside neighbours")
@click.option("--seconds", default=5.0, show_default=True, help="that each set of processes calls")
@click.option("--rounds", default=3, show_default=True, help="of sets of processes")
@click.option("--long", "long_calls", default=10000, show_default=True, help="calls of a long run")
@click.option("--only", type=click.Choice(["busy", "processes", "long"]), multiple=True, help="these parts alone")
@click.option("--point", "words", multiple=True, help="points whose name contains this; else those of the file")
@click.option("-o", "--output", type=OutputFile(), help="figures as JSON")
@click.option("--table", type=OutputFile(), help="figures as Markdown tables")
def main(
    calls: int, seconds: float, rounds: int, long_calls: int, only: tuple[str, ...], words: tuple[str, ...],
    output: str | None, table: str | None,
) -> None:  # fmt: skip
    """Measure beside busy neighbours, with several processes, and in long runs."""
    parts = only or ("busy", "processes", "long")
    layers = [p for p in POINTS if isinstance(p, Point) and not p.training]
    points = [p for p in layers if any(w in p.name for w in words)] if words else list(SIZES)
    found: dict[str, list[Figures]] = {"busy": [], "processes": [], "long": []}
    print(machine())

    def keep(part: str, figures: Figures) -> None:
        found[part].append(figures)
        print(json.dumps(figures), flush=True)
        if output is not None:
            text = json.dumps({"machine": machine(), **found}, indent=1)
            Path(output).write_text(text, encoding="utf-8")

    for point in points if "busy" in parts else ():
        for count in BUSY:
            keep("busy", beside(point, count, calls))
    for point in points if "processes" in parts else ():
        for processes in PROCESSES:
            keep("processes", side_by_side(point, processes, seconds, rounds))
    for who in (NAMES, ONNX) if "long" in parts else ():
        for threads in (1, 8):
            keep("long", _in_a_process(long_run, who, threads, long_calls))
    if table is not None:
        Path(table).write_text(f"{machine()}\n\n{tables(found)}", encoding="utf-8")


if __name__ == "__main__":
    main()

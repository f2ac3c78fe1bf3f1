"""The benchmark: this project beside its peers in one process, interleaved, medians and ratios.

    ratio = best peer's median / ours          above 1 is faster than every peer

Inputs change from call to call. Every round calls each runner once, in turn, so that a slow moment
of the machine falls on all. A point is called slower only if the upper end of the ratio's 90 %
bootstrap interval is below 1.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lstm_ir import bench_peers
from lstm_ir.bench_points import Point

Array = np.ndarray[Any, Any]


@dataclass
class Result:
    """What one point gave: seconds per call, by runner."""

    point: Point
    seconds: dict[str, Array]
    error: float  # largest difference to the first peer, relative to its largest entry
    compile_seconds: float
    missing: dict[str, str] = field(default_factory=dict)

    def median(self, who: str) -> float:
        """Seconds of one call."""
        return float(np.median(self.seconds[who]))

    @property
    def best(self) -> str:
        """The fastest peer."""
        peers = [w for w in self.seconds if w != "lstm-ir"]
        return min(peers, key=self.median)

    @property
    def ratio(self) -> float:
        """Best peer's median by ours."""
        return self.median(self.best) / self.median("lstm-ir")

    def interval(self, draws: int = 2000) -> tuple[float, float]:
        """The ratio's 90 % bootstrap interval."""
        rng = np.random.default_rng(0)
        sides = [
            np.median(rng.choice(self.seconds[w], (draws, len(self.seconds[w]))), axis=1)
            for w in (self.best, "lstm-ir")
        ]
        low, high = np.quantile(sides[0] / sides[1], (0.05, 0.95))
        return float(low), float(high)

    def as_json(self) -> dict[str, Any]:
        """Figures for a file."""
        low, high = self.interval()
        return {
            "point": self.point.name,
            "median_ms": {w: self.median(w) * 1e3 for w in self.seconds},
            "spread_ms": {
                w: float(np.subtract(*np.quantile(s, (0.75, 0.25)))) * 1e3
                for w, s in self.seconds.items()
            },
            "best": self.best,
            "ratio": self.ratio,
            "interval": [low, high],
            "gflops": self.point.flops / self.median("lstm-ir") / 1e9,
            "error": self.error,
            "compile_seconds": self.compile_seconds,
            "missing": self.missing,
        }


def measure(
    point: Point, seconds: float = 1.0, threads: int | None = None, least: int = 9
) -> Result:
    """Measure one point for about `seconds` per runner."""
    count = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    used = count if threads is None else threads
    rng = np.random.default_rng(sum(map(ord, point.name)))
    given = bench_peers.weights(point, rng)
    inputs = [rng.standard_normal((point.T, point.B, point.I), np.float32) for _ in range(4)]
    start = time.perf_counter()
    runs: dict[str, Callable[[Array], Any]] = {"lstm-ir": bench_peers.ours(point, given, used)}
    compiled = time.perf_counter() - start
    missing: dict[str, str] = {}
    for name, make in bench_peers.PEERS.items():
        try:
            run = make(point, given, used)
        except ImportError as e:
            missing[name] = str(e)
            continue
        if run is not None:
            runs[name] = run
    if len(runs) == 1:
        raise ImportError("no peer is installed: torch, onnxruntime or jax")
    error = _compare(point, runs, inputs[0])
    return Result(point, _interleaved(runs, inputs, seconds, least), error, compiled, missing)


def _interleaved(
    runs: dict[str, Callable[[Array], Any]], inputs: list[Array], seconds: float, least: int
) -> dict[str, Array]:
    times: dict[str, list[float]] = {w: [] for w in runs}
    for a in inputs:
        for run in runs.values():
            run(a)  # warm
    stop = time.perf_counter() + seconds * len(runs)
    turn = 0
    names = list(runs)
    while turn < least or (time.perf_counter() < stop and turn < 3000):
        a = inputs[turn % len(inputs)]
        for k in range(len(names)):
            who = names[(k + turn) % len(names)]
            begin = time.perf_counter()
            runs[who](a)
            times[who].append(time.perf_counter() - begin)
        turn += 1
    return {w: np.array(t) for w, t in times.items()}


def _compare(point: Point, runs: dict[str, Callable[[Array], Any]], a: Array) -> float:
    """Ours against PyTorch where it is, else the first peer; only `y` of inference."""
    if point.training:
        return _compare_gradients(runs, a)
    peer = next(w for w in runs if w != "lstm-ir")
    want = np.asarray(runs[peer](a))
    return float(np.abs(runs["lstm-ir"](a)["y"] - want).max() / np.abs(want).max())


def _compare_gradients(runs: dict[str, Callable[[Array], Any]], a: Array) -> float:
    if "torch" not in runs:
        return float("nan")
    got = runs["lstm-ir"](a)
    _, grads = runs["torch"](a)
    ours = np.concatenate([got[f"d_layer0/{n}"].reshape(-1) for n in ("w_ih", "w_hh")])
    per = len(got["d_layer0/w_ih"])
    wants = [grads[4 * d + k].numpy().reshape(-1) for k in (0, 1) for d in range(per)]
    want = np.concatenate(wants)
    return float(np.abs(ours - want).max() / np.abs(want).max())


def peak(threads: int | None = None) -> float:
    """GFLOP/s of a large f32 product by NumPy's BLAS, as a yardstick of the same run."""
    a = np.random.default_rng(0).standard_normal((2048, 2048), np.float32)
    best = min(_seconds(lambda: a @ a) for _ in range(7))
    return 2 * 2048**3 / best / 1e9


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def geometric_mean(ratios: Iterable[float]) -> float:
    """exp(mean(log))."""
    return float(np.exp(np.mean(np.log(list(ratios)))))


def save(results: list[Result], path: str, **about: Any) -> None:
    """Figures as JSON."""
    with open(path, "w", encoding="utf-8") as f:
        json.dump({**about, "points": [r.as_json() for r in results]}, f, indent=1)

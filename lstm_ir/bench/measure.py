"""The benchmark: this project beside its peers, point by point (side_by_side.py says how).

A second executable of the same model runs among the peers: the ratio of the two is what the machine
calls equal. A point counts as slower only if the upper end of the ratio's interval is below 1 and
below that of the two equals.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import lstm_ir as li
from lstm_ir.bench import models, peers
from lstm_ir.bench.machine import cores
from lstm_ir.bench.models import Array, BenchCall, Runner
from lstm_ir.bench.points import Point
from lstm_ir.bench.side_by_side import OURS, Times, interleaved
from lstm_ir.ir.errors import LstmIrError
from lstm_ir.ir.output_file import replacing

AGAIN = "lstm-ir again"
DRIVERS = ("local-sync", "local-task")
_ROUNDS, _CALLS = 40, 50  # of empty calls


@dataclass
class PointResult:
    """What one point gave."""

    point: Point
    times: Times  # ours and the peers
    equals: Times  # ours and ours again
    errors: dict[str, float]  # by peer: largest difference, relative to the largest entry
    compile_seconds: float  # graph, passes, IREE, load; never from the cache
    missing: dict[str, str] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)  # peak bytes by runner, where measured

    @property
    def gflops(self) -> float:
        """GFLOP/s of the products alone."""
        return self.point.flops / self.times.median(OURS) / 1e9

    @property
    def slower(self) -> bool:
        """Slower than the best peer, beyond the spread of the measurement."""
        high = self.times.interval()[1]
        return high < 1 and high < self.equals.interval()[0]

    def as_json(self) -> dict[str, Any]:
        """Figures for a file."""
        times = self.times
        return {
            "point": self.point.name,
            "training": self.point.training,
            "median_ms": {w: times.median(w) * 1e3 for w in times.seconds},
            "spread_ms": {w: times.spread(w) * 1e3 for w in times.seconds},
            "best": times.best,
            "ratio": times.ratio,
            "interval": list(times.interval()),
            "again": list(self.equals.interval()),
            "slower": self.slower,
            "gflops": self.gflops,
            "errors": self.errors,
            "compile_seconds": self.compile_seconds,
            "missing": self.missing,
            "memory_mib": {w: used / (1 << 20) for w, used in self.memory.items()},
        }


class NoPeerError(LstmIrError):
    """Nothing that is installed runs the point."""


def measure(point: Point, seconds: float = 1.0, threads: int | None = None, min_turns: int = 7) -> PointResult:
    """Measure one point for about `seconds` per runner."""
    used = cores() if threads is None else threads
    sets, calls = models.weights(point), models.calls(point)
    start = time.perf_counter()
    runs: dict[str, Runner] = {OURS: models.ours(point, sets, used, cache=False)}
    compiled = time.perf_counter() - start
    runs[AGAIN] = models.ours(point, sets, used)
    missing: dict[str, str] = {}
    for name, make in peers.PEERS.items():
        try:
            made = make(point, sets, used)
        except ImportError as e:
            missing[name] = str(e)
            continue
        if made is not None:
            runs[name] = made
    if len(runs) == 2:
        raise NoPeerError(f"{point.name}: no peer for it is installed ({', '.join(missing)})")
    errors = _compare(runs, calls[0])
    times = interleaved({w: r.run for w, r in runs.items()}, calls, seconds, min_turns)
    again = times.seconds[AGAIN]
    others = {w: s for w, s in times.seconds.items() if w != AGAIN}
    equals = Times({OURS: times.seconds[OURS], AGAIN: again})
    return PointResult(point, Times(others), equals, errors, compiled, missing)


def _compare(runs: dict[str, Runner], call: BenchCall) -> dict[str, float]:
    """Every array that ours gives, against every peer."""
    got = {w: r.read(r.run(call)) for w, r in runs.items() if w != AGAIN}
    mine = got.pop(OURS)
    return {w: max(_error(mine[k], a) for k, a in out.items()) for w, out in got.items()}


def _error(got: Array, want: Array) -> float:
    largest = np.abs(want).max()
    return float(np.abs(got - want).max() / (largest if largest > 0 else 1.0))


def peak() -> float:
    """GFLOP/s of a large f32 product by NumPy's BLAS, as a yardstick of the same run."""
    a = np.random.default_rng(0).standard_normal((2048, 2048), np.float32)
    best = min(_seconds(a) for _ in range(7))
    return 2 * 2048**3 / best / 1e9


def _seconds(a: Array) -> float:
    start = time.perf_counter()
    a @ a
    return time.perf_counter() - start


def geometric_mean(ratios: Iterable[float]) -> float:
    """exp(mean(log))."""
    return float(np.exp(np.mean(np.log(list(ratios)))))


def save(results: list[PointResult], path: str, **about: Any) -> None:
    """Figures as JSON."""
    text = json.dumps({**about, "points": [r.as_json() for r in results]}, indent=1)
    with replacing(path) as f:
        f.write(text.encode())


def empty_call() -> dict[str, float]:
    """Median seconds, by CPU driver, of a call that computes nothing: one dispatch of one element,
    arrays in and out. From interleaved rounds of several calls."""
    x = li.input("x", (1,))
    graph = li.Graph("empty", [x], {"y": li.negate(x)})
    made = {d: li.compile(graph, device=d) for d in DRIVERS}
    a = np.ones(1, np.float32)
    times: dict[str, list[float]] = {d: [] for d in DRIVERS}
    for turn in range(_ROUNDS + 1):
        for d, exe in made.items():
            start = time.perf_counter()
            for _ in range(_CALLS):
                exe(x=a)
            if turn:  # the first warms
                times[d].append((time.perf_counter() - start) / _CALLS)
    for exe in made.values():
        exe.close()
    return {d: float(np.median(t)) for d, t in times.items()}

"""The benchmark: this project beside its peers, point by point (side_by_side.py says how).

This project runs a point in three ways: with the named sizes T and B, with numbers for them, and from a package
with named sizes in a process of its own. Of the peers onnxruntime has open axes too; JAX compiles for the sizes.

A second executable with named sizes runs among them: the ratio of the two is what the machine calls equal. A way
counts as slower only if the upper end of its ratio's interval is below 1 and below that of the two equals.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import lstm_ir as li
from lstm_ir.bench import models, peers
from lstm_ir.bench.elsewhere import PackageProcess
from lstm_ir.bench.models import Array, BenchCall, Runner
from lstm_ir.bench.points import Point
from lstm_ir.ir.errors import LstmIrError
from lstm_ir.ir.output_file import replacing
from lstm_ir.ir.temporary import new_folder
from lstm_ir.measurement.machine import cores
from lstm_ir.measurement.side_by_side import OURS, Elsewhere, Times, interleaved

NAMES, NUMBERS, PACKAGE = WAYS = ("names", "numbers", "package")
AGAIN = "names again"
DRIVERS = ("local-sync", "local-task")
_ROUNDS, _CALLS = 40, 50  # of empty calls


@dataclass
class PointResult:
    """What one point gave."""

    point: Point
    times: Times  # every way of ours, and the peers
    equals: Times  # named sizes, and named sizes again
    errors: dict[str, float]  # by way or peer: largest difference from named sizes, relative to the largest entry
    compile_seconds: dict[str, float]  # of names and numbers: graph, passes, IREE, load; never from the cache
    missing: dict[str, str] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)  # peak bytes by runner, where measured

    @property
    def ways(self) -> tuple[str, ...]:
        """The ways of ours that were measured."""
        return tuple(w for w in WAYS if w in self.times.seconds)

    def beside_peers(self, way: str) -> Times:
        """The times of one way of ours, called `lstm-ir`, and of the peers."""
        peers = {w: s for w, s in self.times.seconds.items() if w not in WAYS}
        return Times({OURS: self.times.seconds[way], **peers})

    def gflops(self, way: str) -> float:
        """GFLOP/s of the products alone."""
        return self.point.flops / self.times.median(way) / 1e9

    def slower(self, way: str) -> bool:
        """Slower than the best peer, beyond the spread of the measurement."""
        high = self.beside_peers(way).interval()[1]
        return high < 1 and high < self.equals.interval()[0]

    def as_json(self) -> dict[str, Any]:
        """Figures for a file."""
        times, of_way = self.times, {w: self.beside_peers(w) for w in self.ways}
        return {
            "point": self.point.name,
            "training": self.point.training,
            "median_ms": {w: times.median(w) * 1e3 for w in times.seconds},
            "spread_ms": {w: times.spread(w) * 1e3 for w in times.seconds},
            "best": next(iter(of_way.values())).best,
            "ratio": {w: t.ratio for w, t in of_way.items()},
            "interval": {w: list(t.interval()) for w, t in of_way.items()},
            "again": list(self.equals.interval()),
            "slower": {w: self.slower(w) for w in of_way},
            "gflops": {w: self.gflops(w) for w in of_way},
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
    missing: dict[str, str] = {}
    theirs: dict[str, Runner] = {}
    for name, make in peers.PEERS.items():
        try:
            made = make(point, sets, used)
        except ImportError as e:
            missing[name] = str(e)
            continue
        if made is not None:
            theirs[name] = made
    if not theirs:
        raise NoPeerError(f"{point.name}: no peer for it is installed ({', '.join(missing)})")
    here: dict[str, Runner] = {}
    compiled: dict[str, float] = {}
    for way in (NAMES, NUMBERS):
        start = time.perf_counter()
        here[way] = models.ours(point, sets, names=way == NAMES, cache=False)
        compiled[way] = time.perf_counter() - start
    here[AGAIN] = models.ours(point, sets, names=True)
    here |= theirs
    with ExitStack() as stack:
        path = stack.enter_context(new_folder()) / "point.lirpkg"
        li.export(models.program_of(point, sets[0], names=True), path, targets=["cpu:host"])
        package = stack.enter_context(PackageProcess(point, path, used))
        found = {w: r.read(r.run(calls[0])) for w, r in here.items() if w != AGAIN}
        errors = _differences({**found, PACKAGE: package.result(0)})
        runs: dict[str, Callable[[BenchCall], Any] | Elsewhere] = {w: r.run for w, r in here.items()}
        seconds_of = interleaved({**runs, PACKAGE: package}, calls, seconds, min_turns).seconds
    order = [*WAYS, *theirs]
    equals = Times({OURS: seconds_of[NAMES], AGAIN: seconds_of[AGAIN]})
    return PointResult(point, Times({w: seconds_of[w] for w in order}), equals, errors, compiled, missing)


def _differences(found: dict[str, dict[str, Array]]) -> dict[str, float]:
    """Every array that named sizes give, against every other runner's."""
    mine = found.pop(NAMES)
    return {w: max(_error(mine[k], a) for k, a in out.items()) for w, out in found.items()}


def _error(got: Array, want: Array) -> float:
    largest = np.abs(want).max()
    return float(np.abs(got - want).max() / (largest if largest > 0 else 1.0))


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

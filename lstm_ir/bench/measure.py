"""The benchmark: this project beside its peers, subject by subject (side_by_side.py says how).

This project runs a subject in three ways: with named sizes, with numbers for them, and from a package with named
sizes in a process of its own. Of the peers onnxruntime has open axes too; JAX and torch.compile compile for the sizes.

A second executable with named sizes runs among them: the ratio of the two is what the machine calls equal. A way
counts as slower only if the upper end of its ratio's interval is below 1 and below that of the two equals.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import lstm_ir as li
from lstm_ir.bench.elsewhere import PACKAGE, ElsewhereError, OtherProcess
from lstm_ir.bench.subject import Array, BenchCall, Subject, TimedRun
from lstm_ir.ir.errors import LstmIrError
from lstm_ir.ir.temporary import new_folder
from lstm_ir.measurement.differences import largest, relative
from lstm_ir.measurement.machine import cores
from lstm_ir.measurement.side_by_side import OURS, Elsewhere, Times, interleaved

NAMES, NUMBERS = "names", "numbers"
WAYS = (NAMES, NUMBERS, PACKAGE)
AGAIN = "names again"
DRIVERS = ("local-sync", "local-task")
LIMIT = 300.0  # seconds until the first results of a peer that compiles in its own process
APART = 1e-2  # by which results may differ, relative: f32 sums in other orders, along 1000 steps and back
_ROUNDS, _CALLS = 40, 50  # of empty calls


@dataclass
class Result:
    """What one subject gave."""

    subject: Subject
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
        return self.subject.flops / self.times.median(way) / 1e9

    def slower(self, way: str) -> bool:
        """Slower than the best peer, beyond the spread of the measurement."""
        high = self.beside_peers(way).interval()[1]
        return high < 1 and high < self.equals.interval()[0]

    def as_json(self) -> dict[str, Any]:
        """Figures for a file."""
        times, of_way = self.times, {w: self.beside_peers(w) for w in self.ways}
        return {
            "point": self.subject.name,
            "group": self.subject.group,
            "training": self.subject.training,
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


class DifferentError(LstmIrError):
    """Runners give other results than each other, so their times say nothing."""


def measure(
    subject: Subject, seconds: float = 1.0, threads: int | None = None, min_turns: int = 7, target: str = "cpu",
    cache: bool = False,
) -> Result:  # fmt: skip
    """Measure one subject for about `seconds` per runner.

    target: of ours. cache: whether modules may come from the cache; then compile times say nothing.
    Raises NoPeerError, and DifferentError before anything is timed.
    """
    used = cores() if threads is None else threads
    calls, missing = subject.calls(), dict[str, str]()
    theirs: dict[str, TimedRun] = {}
    for name, make in subject.peers().items():
        try:
            made = make(used)
        except ImportError as e:
            missing[name] = str(e)
            continue
        if made is not None:
            theirs[name] = made
    if not theirs:
        raise NoPeerError(f"{subject.name}: no peer for it is installed ({', '.join(missing)})")
    here: dict[str, TimedRun] = {}
    compiled: dict[str, float] = {}
    for way, program in ((NAMES, subject.program(names=True)), (NUMBERS, subject.program(names=False))):
        start = time.perf_counter()
        here[way] = subject.runner(li.compile(program, target, options={"cache": cache}))
        compiled[way] = time.perf_counter() - start
    here[AGAIN] = subject.runner(li.compile(subject.program(names=True), target))
    here |= theirs
    with ExitStack() as stack:
        path = stack.enter_context(new_folder()) / "point.lirpkg"
        li.export(subject.program(names=True), path, targets=[exported(target)])
        others = {PACKAGE: stack.enter_context(OtherProcess(subject, PACKAGE, used, path))}
        found = {w: [r.read(r.run(c)) for c in calls] for w, r in here.items() if w != AGAIN}
        found[PACKAGE] = others[PACKAGE].results()
        for name in subject.peers_elsewhere():
            process = stack.enter_context(OtherProcess(subject, name, used))
            try:
                found[name] = process.results(LIMIT)
            except ElsewhereError as e:
                missing[name] = str(e)
                continue
            others[name] = process
        errors = _differences(found)
        confirm(subject.name, errors)
        runs: dict[str, Callable[[BenchCall], Any] | Elsewhere] = {w: r.run for w, r in here.items()}
        most = subject.turn_calls
        seconds_of = interleaved({**runs, **others}, calls, seconds, min_turns, turn_calls=most).seconds
    order = [*WAYS, *theirs, *(w for w in others if w != PACKAGE)]
    equals = Times({OURS: seconds_of[NAMES], AGAIN: seconds_of[AGAIN]})
    return Result(subject, Times({w: seconds_of[w] for w in order}), equals, errors, compiled, missing)


def exported(target: str) -> str:
    """The target's word in a package: `cpu` alone would be one for each level."""
    return "cpu:host" if target == "cpu" else target


def confirm(point: str, errors: Mapping[str, float]) -> None:
    """DifferentError where a runner's results are further than APART from ours."""
    wrong = [f"{w} by {e:.1g}" for w, e in errors.items() if not e <= APART]
    if wrong:
        raise DifferentError(f"{point}: results differ from ours, relative to the largest: {', '.join(wrong)}")


def _differences(outputs: dict[str, list[dict[str, Array]]]) -> dict[str, float]:
    """Every array that named sizes give, against every other runner's, call by call."""
    mine = outputs.pop(NAMES)
    return {
        w: largest(relative(want[k], a) for want, out in zip(mine, outs, strict=True) for k, a in out.items())
        for w, outs in outputs.items()
    }


def geometric_mean(ratios: Iterable[float]) -> float:
    """exp(mean(log))."""
    return float(np.exp(np.mean(np.log(list(ratios)))))


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

"""Seconds per call of several runners in one process, called in turn, and their ratio.

    ratio = best peer's median / ours          above 1 is faster than every peer

Inputs change from call to call. Every round gives each runner a turn, starting with another one each
time, so that a slow moment of the machine falls on all. A turn is a rest, a call that is not counted
and calls that are: the workers of OpenMP and of onnxruntime go on spinning for milliseconds after a
call, and would take a core from whoever is next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]
OURS = "lstm-ir"
REST, TURN = 0.02, 0.02  # seconds
CALLS = 10  # of a turn, at most


@dataclass
class Times:
    """Seconds of each call, by runner; ours is called `lstm-ir`."""

    seconds: Mapping[str, Array]

    def median(self, who: str) -> float:
        """Seconds of one call."""
        return float(np.median(self.seconds[who]))

    def spread(self, who: str) -> float:
        """Seconds between the quartiles."""
        return float(np.subtract(*np.quantile(self.seconds[who], (0.75, 0.25))))

    @property
    def best(self) -> str:
        """The fastest peer."""
        return min((w for w in self.seconds if w != OURS), key=self.median)

    @property
    def ratio(self) -> float:
        """Best peer's median by ours."""
        return self.median(self.best) / self.median(OURS)

    def interval(self, draws: int = 2000) -> tuple[float, float]:
        """The ratio's 90 % bootstrap interval."""
        rng = np.random.default_rng(0)
        sides = [
            np.median(rng.choice(self.seconds[w], (draws, len(self.seconds[w]))), axis=1) for w in (self.best, OURS)
        ]
        low, high = np.quantile(sides[0] / sides[1], (0.05, 0.95))
        return float(low), float(high)


class Elsewhere(Protocol):
    """A runner in another process, which has the same inputs and takes its turns there."""

    def warm(self) -> None:
        """Call with every input once."""

    def turn(self, turn: int) -> list[float]:
        """Seconds of each counted call of a turn."""


@dataclass(frozen=True)
class Here:
    """A runner in this process."""

    run: Callable[[Any], Any]
    inputs: Sequence[Any]
    most: int = CALLS  # of a turn

    def warm(self) -> None:
        """Call with every input once."""
        for a in self.inputs:
            self.run(a)

    def turn(self, turn: int) -> list[float]:
        """A rest, a call that is not counted, and calls that are."""
        time.sleep(REST)
        self.run(self.inputs[turn % len(self.inputs)])
        times: list[float] = []
        while not times or (sum(times) < TURN and len(times) < self.most):
            a = self.inputs[(turn + 1 + len(times)) % len(self.inputs)]
            begin = time.perf_counter()
            self.run(a)
            times.append(time.perf_counter() - begin)
        return times


def interleaved(
    runs: Mapping[str, Callable[[Any], Any] | Elsewhere],
    inputs: Sequence[Any],
    seconds: float,
    min_turns: int = 9,
    max_calls: int = 3000,
    turn_calls: int = CALLS,
) -> Times:
    """Call every runner with every input once, then for about `seconds` each, `min_turns` turns or
    `max_calls` calls; a turn has `turn_calls` calls at most."""
    times: dict[str, list[float]] = {w: [] for w in runs}
    sides = {w: Here(r, inputs, turn_calls) if callable(r) else r for w, r in runs.items()}
    for side in sides.values():
        side.warm()
    stop = time.perf_counter() + seconds * len(runs)
    turn, names = 0, list(runs)
    while turn < min_turns or (time.perf_counter() < stop and len(times[names[0]]) < max_calls):
        for k in range(len(names)):
            who = names[(k + turn) % len(names)]
            times[who] += sides[who].turn(turn)
        turn += 1
    return Times({w: np.array(t) for w, t in times.items()})

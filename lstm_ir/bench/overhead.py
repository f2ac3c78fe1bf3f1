"""What a call costs that computes nothing: one dispatch of one element, arrays in and out."""

from __future__ import annotations

import time

import numpy as np

DRIVERS = ("local-sync", "local-task")
_ROUNDS, _CALLS = 40, 50


def empty_call() -> dict[str, float]:
    """Median seconds of such a call by CPU driver, from interleaved rounds of several calls."""
    from lstm_ir.api import compile
    from lstm_ir.ir.graph import Graph
    from lstm_ir.ops import input, negate

    x = input("x", (1,))
    graph = Graph("empty", [x], {"y": negate(x)})
    made = {d: compile(graph, device=d) for d in DRIVERS}
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

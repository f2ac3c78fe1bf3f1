"""Run by test_until_kernels: loops that end by what their steps compute, shared by argv[1] workers."""

from __future__ import annotations

import sys

import numpy as np
from until_bodies import arrays, recurrent

import lstm_ir as li

ROUNDS = 150


def main(threads: int, seed: int) -> None:
    li.set_threads(threads)
    graphs = [recurrent(B, H, 13) for B, H in ((1, 72), (3, 200), (4, 330))]
    made = [li.compile(g, device="local-task", options={"thresholds": {"shared_step": 1}}) for g in graphs]
    worst, rng = 0.0, np.random.default_rng(seed)
    for _ in range(ROUNDS):
        for graph, exe in zip(graphs, made, strict=True):
            given = arrays(graph, rng)
            want, got = li.interpret(graph, given), exe(given)
            worst = max(worst, *(float(np.abs(got[k] - w).max()) for k, w in want.items()))
    print(f"worst {worst / 2e-4:.3e}")


main(int(sys.argv[1]), int(sys.argv[2]))

"""Run by test_meeting_rows: bodies in which rows meet, shared by argv[1] workers."""

from __future__ import annotations

import sys

import numpy as np
from meeting_bodies import BODIES, ENDS, Sizes, draw, ending
from meeting_random import random_graph

import lstm_ir as li

ROUNDS = 25


def main(threads: int, seed: int) -> None:
    li.set_threads(threads)
    graphs = [build(Sizes(13, 3, 200), "f64") for build, _ in BODIES.values()]
    graphs += [ending(name, Sizes(13, 4, 72), "f64") for name in ENDS]
    graphs += [random_graph(seed + i, Sizes(11, 5, 72), "f64") for i in range(4)]
    made = [li.compile(g, device="local-task", options={"thresholds": {"shared_step": 1}}) for g in graphs]
    worst, rng = 0.0, np.random.default_rng(seed)
    for _ in range(ROUNDS):
        for graph, exe in zip(graphs, made, strict=True):
            given = draw(graph, rng, 13, 3)
            want, got = li.interpret(graph, given), exe(given)
            worst = max(worst, *(float(np.max(np.abs(got[k] - w) / (1 + np.abs(w)))) for k, w in want.items()))
    print(f"worst {worst / 1e-9:.3e}")


main(int(sys.argv[1]), int(sys.argv[2]))

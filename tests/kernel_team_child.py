"""Run by test_kernel_teams: bodies shared by argv[1] workers, against the interpreter."""

from __future__ import annotations

import sys

import numpy as np
from kernel_bodies import BODIES, Loop

import lstm_ir as li
from lstm_ir.backends.kernels import workers
from lstm_ir.program import Program

NAMES = ("gated", "two_phases", "ends_in_product", "both_ways", "normalised", "counted")


def main(threads: int, device: str) -> None:
    if device == "local-task":
        li.set_threads(threads)
    workers.SHARE_FLOPS = 1  # share whatever there is
    loops = {n: Loop(("T", "B", 5, 72), np.random.default_rng(i)) for i, n in enumerate(NAMES)}
    graphs = {n: loops[n].graph(n, BODIES[n]) for n in NAMES}
    exe = li.compile(Program("bodies", graphs), device=device)
    worst = 0.0
    for _ in range(12):
        for T, B in ((37, 1), (1, 1), (0, 2), (5, 9)):
            for name, graph in graphs.items():
                arrays = loops[name].arrays(graph, T, B)
                want, got = li.interpret(graph, arrays), exe.entries[name](arrays)
                for k, w in want.items():
                    error = np.abs(got[k] * 1.0 - w * 1.0) / (1 + np.abs(w))
                    worst = max(worst, float(error.max()) if error.size else 0.0)
    print(f"worst {worst:.3e}")


main(int(sys.argv[1]), sys.argv[2])

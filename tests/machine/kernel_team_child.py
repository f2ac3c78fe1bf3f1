"""Run by test_kernel_teams: bodies shared by argv[1] workers, against the interpreter."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from kernel_bodies import BODIES, Loop
from kernel_random import random_body

import lstm_ir as li
from lstm_ir.ir.program import Program

NAMES = ("gated", "two_phases", "ends_in_product", "both_ways", "normalised", "counted")
KNOWN = {
    # One row: its products are made by the loop's kernel.
    "gated_of_one": ("gated", (37, 1, 5, 72)),
    "both_ways_of_one": ("both_ways", (37, 1, 5, 72)),
    # An odd number of blocks of 4, 8 and 16 columns: members have halves of their rows.
    "gated_in_halves": ("gated", (11, 3, 5, 68)),
    "normalised_in_halves": ("normalised", (11, 5, 5, 68)),
}


def main(threads: int, device: str, target: str, rounds: int, seed: int) -> None:
    if device == "local-task":
        li.set_threads(threads)
    sizes, loops, graphs = ("T", "B", 5, 72), {}, {}
    for i, n in enumerate((*NAMES, "r0", "r1")):
        # What is random may be chaotic: in f64 only a wrong kernel differs.
        loops[n] = Loop(sizes, np.random.default_rng(i), "f64" if n[0] == "r" else "f32")
        graphs[n] = loops[n].graph(n, BODIES[n] if n in BODIES else random_body(seed + i))
    rngs = {name: np.random.default_rng(90 + i) for i, name in enumerate(KNOWN)}
    known = {name: Loop(at, rngs[name]) for name, (_, at) in KNOWN.items()}
    graphs |= {name: loop.graph(name, BODIES[KNOWN[name][0]]) for name, loop in known.items()}
    shared = {"thresholds": {"shared_step": 1}}  # whatever there is
    exe = li.compile(Program("bodies", graphs), target, device=device, options=shared)
    print(exe.report.notes)
    worst = 0.0
    for _ in range(rounds):
        for n, loop in known.items():
            worst = max(worst, error(exe, graphs[n], loop.arrays(graphs[n], loop.T, loop.B)))
        for T, B in ((37, 1), (1, 1), (0, 2), (5, 9))[: 4 if rounds > 1 else 1]:
            for name, loop in loops.items():
                graph = graphs[name]
                worst = max(worst, error(exe, graph, loop.arrays(graph, T, B)))
    print(f"worst {worst:.3e}")


def error(exe: Any, graph: li.Graph, arrays: dict[str, Any]) -> float:
    """The largest relative one, in units of 2e-5 of f32 or 1e-10 of f64."""
    want, got = li.interpret(graph, arrays), exe.entries[graph.name](arrays)
    unit = 2e-5 if graph.outputs[0].dtype.name == "f32" else 1e-10
    found = [np.abs(got[k] * 1.0 - w * 1.0) / (1 + np.abs(w)) for k, w in want.items() if w.size]
    return max((float(e.max()) for e in found), default=0.0) / unit


main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))

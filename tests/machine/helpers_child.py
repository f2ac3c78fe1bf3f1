"""Run by test_helpers: bodies and a gradient with argv[1] threads, by several callers, against the interpreter."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
from kernel_bodies import BODIES, Loop
from kernel_random import random_body

import lstm_ir as li
from lstm_ir.backends.run import helper_pool
from lstm_ir.ir.program import Program

NAMES = ("gated", "two_phases", "ends_in_product", "both_ways", "normalised", "counted")
SHARED = {"shared_step": 1}  # whatever there is
SIZES = ((37, 1, 5, 72), (11, 5, 7, 68), (1, 9, 3, 130), (23, 16, 5, 40))


def main(threads: int, callers: int, rounds: int, seed: int) -> None:
    li.set_threads(threads)
    loops: dict[str, Loop] = {}
    graphs: dict[str, li.Graph] = {}
    for i, n in enumerate((*NAMES, "r0", "r1", "r2")):
        # What is random may be chaotic: in f64 only a wrong kernel differs.
        kind = "f64" if n[0] == "r" else "f32"
        loops[n] = Loop(SIZES[i % len(SIZES)], np.random.default_rng(seed + i), kind)
        body = BODIES[n] if n in BODIES else random_body(seed + i)
        graphs[n] = loops[n].graph(n, body)
    graphs["back"], loops["back"] = gradient(seed + 50)
    exe = li.compile(Program("bodies", graphs), options={"cache": False, "helpers": "always", "thresholds": SHARED})
    assert exe.helped, exe.report.notes
    cases: list[Any] = []
    for n, graph in graphs.items():
        for _ in range(3):
            arrays = loops[n].arrays(graph, loops[n].T, loops[n].B)
            cases.append((n, arrays, li.interpret(graph, arrays)))
    worst = [0.0] * callers

    def call(k: int) -> None:
        session = exe if k == 0 else exe.session()
        order = np.random.default_rng(seed + 100 + k)
        for _ in range(rounds):
            for i in order.permutation(len(cases)):
                n, arrays, want = cases[i]
                got = session.entries[n](arrays)
                worst[k] = max(worst[k], error(graphs[n], got, want))
        if k:
            session.close()

    others = [threading.Thread(target=call, args=(k,)) for k in range(1, callers)]
    for t in others:
        t.start()
    call(0)
    for t in others:
        t.join()
    most = helper_pool.wanted()
    assert len([t for t in threading.enumerate() if t.name == "lstm-ir helper"]) <= most + 1
    print(f"helpers {most} worst {max(worst):.3e}")


def gradient(seed: int) -> tuple[li.Graph, Loop]:
    s = Loop((13, 3, 24, 56), np.random.default_rng(seed))
    x, w, r = s.x, s.weight(4 * s.H, s.I), s.weight(4 * s.H, s.H)
    graph = li.Graph("f", s.inputs, {"y": li.lstm(x, w, r)[0]})
    back = li.vjp(graph, ["y"], ["x", *graph.weights])
    named = dict(zip(back.output_names, back.outputs, strict=True))
    return li.Graph("back", back.params, named), s


def error(graph: li.Graph, got: dict[str, Any], want: dict[str, Any]) -> float:
    """The largest relative one, in units of 2e-5 of f32 or 1e-10 of f64."""
    unit = 2e-5 if graph.outputs[0].dtype.name == "f32" else 1e-10
    found = [np.abs(got[k] * 1.0 - w * 1.0) / (1 + np.abs(w)) for k, w in want.items() if w.size]
    return max((float(e.max()) for e in found), default=0.0) / unit


main(*map(int, sys.argv[1:5]))

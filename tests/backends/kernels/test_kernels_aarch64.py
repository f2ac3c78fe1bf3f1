"""Kernels for aarch64 (NEON, four lanes) under qemu, with the aarch64 runtime.

qemu on x86 keeps x86's memory order: that the order of the team form suffices is argued in team.py,
and test_kernel_teams reads it in the LLVM IR.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aarch64_run
import numpy as np
import pytest
from device import qemu
from kernel_bodies import BODIES, Loop
from kernel_random import random_body

import lstm_ir as li
from lstm_ir.ir.program import Program

SIZES = (7, 3, 5, 23)
SEED = 20263


def _bodies() -> dict[str, Any]:
    return dict(BODIES) | {f"r{i}": random_body(SEED + i) for i in range(2)}


def _module(work: Path, **options: Any) -> tuple[dict[str, Loop], dict[str, li.Graph]]:
    """All bodies and the gradient of an LSTM, compiled for aarch64 into `work`."""
    bodies = _bodies()
    loops = {n: Loop(SIZES, np.random.default_rng(i)) for i, n in enumerate(bodies)}
    graphs = {n: loops[n].graph(n, bodies[n]) for n in bodies}
    loops["back"] = Loop(SIZES, np.random.default_rng(50))
    graphs["back"] = _gradient(loops["back"])
    report = aarch64_run.compiled(work, Program("bodies", graphs), **options)
    notes = [n for n in report.notes if n.startswith("scan at")]
    assert all(": kernel, " in n for n in notes)
    return loops, graphs


def _gradient(s: Loop) -> li.Graph:
    x, w, r = s.x, s.weight(4 * s.H, s.I), s.weight(4 * s.H, s.H)
    ends = s.input("ends", s.B, dtype="i32")
    graph = li.Graph("f", s.inputs, {"y": li.lstm(x, w, r, lengths=ends)[0]})
    back = li.vjp(graph, ["y"], ["x", *graph.weights])
    return li.Graph("back", back.params, dict(zip(back.output_names, back.outputs, strict=True)))


def _compare(work: Path, loops: Any, graphs: Any, names: Any, *flags: str) -> None:
    def one(name: str) -> None:
        graph = graphs[name]
        arrays = loops[name].arrays(graph, *SIZES[:2])
        got = aarch64_run.run(work, name, graph, arrays, *flags)
        for k, want in li.interpret(graph, arrays).items():
            np.testing.assert_allclose(got[k], want, rtol=2e-5, atol=2e-5, err_msg=f"{name} {k}")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, names))


@pytest.mark.slow
def test_every_body(tmp_path: Path) -> None:
    qemu()
    loops, graphs = _module(tmp_path)
    _compare(tmp_path, loops, graphs, graphs, "--device=local-sync")


@pytest.mark.slow
def test_shared_blocks(tmp_path: Path) -> None:
    qemu()
    loops, graphs = _module(tmp_path, thresholds={"shared_step": 1})
    some = ("gated", "two_phases", "both_ways", "normalised", "counted", "back", "r0")
    for n in (1, 5):
        many = f"--task_topology_group_count={n}"
        _compare(tmp_path, loops, graphs, some, "--device=local-task", many)

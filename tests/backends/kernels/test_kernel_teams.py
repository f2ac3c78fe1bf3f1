"""Several workgroups on one sequence: one worker, as many as cores, and many more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child import script
from iree_stream import stream
from kernel_bodies import BODIES, Loop
from kernel_checks import BASELINE

import lstm_ir as li
from lstm_ir.api import build, prepare
from lstm_ir.backends.compile import compiler
from lstm_ir.backends.kernels.cpu.machine import FOLD_ROWS
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.program import Program


def _child(threads: int, device: str, target: str, rounds: int) -> float:
    """The largest error, in units of its tolerance, of the bodies that a process of so many workers ran."""
    out = script("kernel_team_child.py", threads, device, target, rounds, 20261, timeout=240)
    print(out)
    found = re.search(r"worst (\S+)", out)
    assert found is not None
    return float(found[1])


@pytest.mark.slow_cases(threads=[1, 2])
@pytest.mark.parametrize(
    ("threads", "device", "target"), [(1, "local-sync", "cpu"), (2, "local-task", BASELINE), (7, "local-task", "cpu")]
)
def test_shared_blocks(threads: int, device: str, target: str) -> None:
    assert _child(threads, device, target, 6) < 1


@pytest.mark.slow
def test_shared_blocks_finish_on_a_loaded_machine() -> None:
    """More workers than cores, and every core taken by others: waiting may not hold up the rest."""
    spin = [sys.executable, "-c", "while True: pass"]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    others = [subprocess.Popen(spin) for _ in range(2 * cores)]
    try:
        assert _child(cores + 3, "local-task", "cpu", 1) < 1
    finally:
        for p in others:
            p.kill()
            p.wait()


def _graph(sizes: Any) -> li.Graph:
    loop = Loop(sizes, np.random.default_rng(2))
    return loop.graph("gated", BODIES["gated"])


def test_atomics_are_acquire_and_release_in_llvm(tmp_path: Path) -> None:
    """The order that weak memory needs (see team.py) is in the code that LLVM gets."""
    target = resolve("cpu:aarch64")
    flags = [*compiler.BASE_FLAGS, *target.flags, f"--iree-hal-dump-executable-intermediates-to={tmp_path}"]
    text = prepare(_graph((5, 1, 5, 256)), target).text
    compiler.run(text, flags, name="order", target="cpu:aarch64", timeout=120)
    (codegen,) = tmp_path.glob("*linked*.optimized.ll")
    code = codegen.read_text()
    atomics = re.findall(r"atomicrmw \w+ .*", code)
    assert len(atomics) >= 4
    assert [a for a in atomics if "acq_rel" not in a and "seq_cst" not in a] == []
    looks = re.findall(r"load atomic .*", code)
    assert len(looks) >= 2  # before the first step, and after each sweep
    assert [a for a in looks if " acquire, align 4" not in a] == []


@pytest.mark.parametrize("widths", [(64, 256), (1024, 4096)], ids=["near", "asked for ahead"])
def test_the_module_does_not_grow_with_its_sizes(widths: tuple[int, int]) -> None:
    sizes = [(12, 12, 16, widths[0]), (12000, 12, 16, widths[1])]
    texts = [prepare(_graph(s), resolve("cpu:x86-64-v3")).text for s in sizes]
    assert ("locality<2>" in texts[0]) == (widths[0] == 1024)
    small, large = (
        [x for x in t.splitlines() if "arith.constant" not in x and not x.startswith("#loc")] for t in texts
    )
    assert len(large) == len(small) > 200


def test_weights_are_packed_at_load_not_at_every_call() -> None:
    before, main = stream(_graph((5, 32, 16, 64)))
    assert main.count("stream.cmd.dispatch @") == 1
    assert "stream.cmd.dispatch @" in before


@pytest.mark.parametrize("rows", [1, 2])
def test_a_recurrence_is_one_submission(rows: int) -> None:
    """A wait or a barrier between its dispatches would put workers to sleep (tens of us each)."""
    w = np.random.default_rng(3).standard_normal
    x = li.input("x", (20, rows, 16))
    weights = [w(s).astype(np.float32) for s in ((256, 16), (256, 64))]
    y, _, _ = li.lstm(x, *(li.weight(f"w{i}", a) for i, a in enumerate(weights)))
    _, main = stream(li.Graph("zeros", [x], {"y": y}))
    assert main.count("stream.cmd.dispatch @recurrence_") == rows  # loop; before it a projection
    assert main.count("stream.cmd.execute") == main.count("stream.timepoint.await") == 1


def test_a_training_step_copies_no_sequence() -> None:
    """Gates are written over, rows of the step before are read where they are."""
    x = li.input("x", (20, 12, 64))
    w = np.random.default_rng(3).standard_normal
    weights = [li.weight(f"w{i}", w((256, 64)).astype(np.float32)) for i in range(2)]
    y = li.lstm(x, weights[0], weights[1])[0]
    g = li.grad(li.Graph("l", [x], {"loss": li.sum(y * y)}), "loss", ["x", "w0", "w1"])
    _, main = stream(g)
    assert main.count("stream.cmd.dispatch @recurrence_") == 5  # there, back, d_x, d_w0, d_w1
    assert main.count("stream.cmd.copy") == 0


def test_the_call_decides_where_sizes_are_named() -> None:
    """Folded, with scratch that stays or with that of a call, or, of few rows, with products of blocks of steps: two
    kernels; their weights are packed before."""
    before, main = stream(_graph(("T", "B", 16, 64)))
    assert main.count("stream.cmd.dispatch @recurrence_") == 3
    assert main.count("stream.cmd.dispatch @") == 3
    assert len(set(re.findall(r"dispatch @(recurrence_\w+)", main))) == 2
    assert before.count("stream.cmd.dispatch @") >= 3
    report = prepare(_graph(("T", "B", 16, 64)), resolve("cpu")).report
    assert any("hoisted projection" in n and f"from {FOLD_ROWS} rows on" in n for n in report.notes)


@pytest.mark.parametrize("word", ["cpu:x86-64", "cpu:x86-64-v3", "cpu:aarch64", "cpu:riscv64"])
def test_other_processors_compile(word: str) -> None:
    lowered, blob = build(_graph((5, 3, 5, 20)), resolve(word), {"cache": False})
    assert any(": kernel, " in n for n in lowered.report.notes)
    assert len(blob) > 1000


def test_loops_of_one_form_share_a_kernel() -> None:
    graphs = {n: _graph((5, 3, 5, 20)) for n in ("one", "two")}
    single = prepare(graphs["one"], resolve("cpu:x86-64-v3")).text
    both = prepare(Program("pair", graphs), resolve("cpu:x86-64-v3")).text
    count = single.count("stream.executable private @recurrence_")
    assert both.count("stream.executable private @recurrence_") == count > 0
    assert both.count("flow.dispatch @") == 2 * single.count("flow.dispatch @")

"""Several workgroups on one sequence: one worker, as many as cores, and many more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kernel_bodies import BODIES, Loop

import lstm_ir as li
from lstm_ir.api import build, prepare
from lstm_ir.backends import compiler
from lstm_ir.backends.targets import resolve
from lstm_ir.program import Program

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("threads", "device"), [(1, "local-sync"), (2, "local-task"), (7, "local-task")]
)
def test_shared_blocks(threads: int, device: str) -> None:
    command = [sys.executable, str(HERE / "kernel_team_child.py"), str(threads), device]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE)])}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = re.search(r"worst (\S+)", done.stdout)
    assert found is not None
    assert float(found[1]) < 2e-5


def _graph(sizes: tuple[int, int, int, int]) -> li.Graph:
    loop = Loop(sizes, np.random.default_rng(2))
    return loop.graph("gated", BODIES["gated"])


def test_atomics_are_acquire_and_release_in_llvm(tmp_path: Path) -> None:
    """The order that weak memory needs (see team.py) is in the code that LLVM gets."""
    target = resolve("cpu:aarch64")
    flags = [
        *compiler.BASE_FLAGS,
        *target.flags,
        f"--iree-hal-dump-executable-intermediates-to={tmp_path}",
    ]
    text = prepare(_graph((5, 1, 5, 256)), target).text
    compiler.run(text, flags, name="order", target="cpu:aarch64", timeout=120)
    (codegen,) = tmp_path.glob("*linked*.optimized.ll")
    atomics = re.findall(r"atomicrmw \w+ .*", codegen.read_text())
    assert len(atomics) >= 4
    assert [a for a in atomics if "acq_rel" not in a and "seq_cst" not in a] == []


def test_the_module_does_not_grow_with_its_sizes() -> None:
    sizes = [(10, 1, 16, 64), (10000, 1, 16, 1024)]
    texts = [prepare(_graph(s), resolve("cpu:x86-64-v3")).text for s in sizes]
    small, large = (
        [x for x in t.splitlines() if "arith.constant" not in x and not x.startswith("#loc")]
        for t in texts
    )
    assert len(large) == len(small) > 200


def test_weights_are_packed_at_load_not_at_every_call(tmp_path: Path) -> None:
    target = resolve("cpu")
    flags = [*compiler.BASE_FLAGS, *target.flags, "--iree-opt-level=O3", "--compile-to=stream"]
    text = prepare(_graph((5, 32, 16, 64)), target).text
    out = compiler.run(text, flags, name="packing", target="cpu", timeout=120).decode()
    main = out[out.index("util.func public @main") :]
    assert main.count("stream.cmd.dispatch @") == 1
    assert "stream.cmd.dispatch @" in out[: out.index("util.func public @main")]


@pytest.mark.parametrize("word", ["cpu:x86-64", "cpu:x86-64-v3", "cpu:aarch64", "cpu:riscv64"])
def test_other_processors_compile(word: str) -> None:
    lowered, blob = build(_graph((5, 3, 5, 20)), resolve(word), {"cache": False})
    assert any(": kernel, " in n for n in lowered.report.notes)
    assert len(blob) > 1000


def test_loops_of_one_form_share_a_kernel() -> None:
    graphs = {n: _graph((5, 3, 5, 20)) for n in ("one", "two")}
    single = prepare(graphs["one"], resolve("cpu:x86-64-v3")).text
    both = prepare(Program("pair", graphs), resolve("cpu:x86-64-v3")).text
    count = single.count("stream.executable private")
    assert both.count("stream.executable private") == count > 0
    assert both.count("flow.dispatch @") == 2 * single.count("flow.dispatch @")

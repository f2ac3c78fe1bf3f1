"""Before and after of every pass, as text: `golden/passes/<pass>/<case>.lir`.

A file holds a graph, a line `// -----`, and what the pass makes of it with the reasons for what it
left alone; `--update-golden` rewrites the second part. The graphs' arrays need not be there: only
their hashes are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from paths import GOLDEN

import lstm_ir as li
from lstm_ir.backends.run.devices import resolve
from lstm_ir.passes.pipeline import Pipeline
from lstm_ir.passes.pipelines import registry

FOLDER = GOLDEN / "passes"
CASES = sorted(p.relative_to(FOLDER) for p in FOLDER.glob("*/*.lir"))
LINE = "// -----\n"
# Passes for targets with kernels, or for CPUs, alone, with options for graphs that are small enough to read.
FOR_KERNELS = {
    "chunk-states": ("chunk-states{kernels=no}", resolve("cpu").info),
    "fuse-epilogues": ("fuse-epilogues", resolve("cpu").info),
    "join-rows": ("join-rows{max_tensors=3}", resolve("cpu").info),
    "sink-elementwise": ("sink-elementwise", resolve("cpu").info),
    "turn-bodies": ("turn-bodies", resolve("cpu").info),
    "unroll-loops": ("unroll-loops", resolve("cpu").info),
}
WANTED = ("match", "near_miss", "output", "shared", "in_loop")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_golden(case: Path, golden: Callable[[str, str], None]) -> None:
    before, _, _ = (FOLDER / case).read_text().partition(LINE)
    graph = li.parse(before)
    assert isinstance(graph, li.Graph)
    name = case.parts[0]
    text, target = FOR_KERNELS.get(name, (name, None))
    result = Pipeline.parse(text).run(graph, target)
    left = "".join(f"// left alone: {m.reason}\n" for s in result.steps for m in s.misses)
    golden(f"passes/{case}", f"{before}{LINE}{left}{result.graph}")
    idle = case.stem == "near_miss"
    assert (result.graph is graph) == idle, "a near miss is left alone, every other case is not"


def test_every_pass_has_every_kind_of_case() -> None:
    have = {(c.parts[0], c.stem) for c in CASES}
    missing = [(p, w) for p in registry() for w in WANTED if (p, w) not in have]
    assert not missing, missing

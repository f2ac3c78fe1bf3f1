"""GPU kernels against the interpreter, on Vulkan; CUDA, HIP and Metal compile the same text."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from device import need
from kernel_bodies import BODIES, Loop
from test_kernels import TOLERANCE, compare

import lstm_ir as li
from lstm_ir.program import Program

KERNELS = {"kernels": True}
CALLS = ((11, 3), (1, 1), (0, 2), (6, 17))
# What a kernel for SPIR-V refuses, and where the refusal stands.
REFUSED = {"every_kind": "erf in a kernel for this target (`erf` at kernel_bodies.py:"}


def choices(report: Any) -> list[str]:
    """How each loop was lowered."""
    return [n for n in report.notes if n.startswith("scan at")]


@cache
def compiled() -> tuple[Any, dict[str, Loop], dict[str, li.Graph]]:
    """All bodies with named sizes as entries of one program."""
    sizes = ("T", "B", 5, 23)
    loops = {n: Loop(sizes, np.random.default_rng(i)) for i, n in enumerate(BODIES)}
    graphs = {n: loops[n].graph(n, BODIES[n]) for n in BODIES}
    return li.compile(Program("bodies", graphs), "vulkan", options=KERNELS), loops, graphs


@pytest.mark.vulkan
@pytest.mark.parametrize("name", BODIES)
def test_named_sizes_vulkan(name: str) -> None:
    need("vulkan")
    exe, loops, graphs = compiled()
    for T, B in CALLS:
        compare(exe, graphs[name], loops[name].arrays(graphs[name], T, B), TOLERANCE["f32"])


@pytest.mark.vulkan
def test_every_body_becomes_a_kernel_or_says_why_vulkan() -> None:
    need("vulkan")
    exe, _, _ = compiled()
    loops = [n for n in choices(exe.report) if ": loop, " in n]
    assert len(loops) == len(REFUSED)
    for why in REFUSED.values():
        assert why in loops[0]
    assert all("one dispatch" in n for n in choices(exe.report) if n not in loops)

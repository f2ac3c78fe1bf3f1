"""Products whose named sizes repeat, or are 0 at a call: an empty sum is 0.

IREE 3.13 packs operands such as [T,T,B] with a number of workgroups that it counts from the wrong
sizes: too few for some, and for B = 0 it divides by it, which ends the process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sizes_child import PARTS

CHILD = Path(__file__).with_name("sizes_child.py")


def _run(part: str, seed: int, **options: Any) -> None:
    done = subprocess.run(
        [sys.executable, CHILD, part, str(seed), json.dumps(options)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = f"seed {seed}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert done.returncode == 0, said
    assert "wrong:" not in done.stdout, said
    assert "#" in done.stdout, said


def test_what_was_reported(seed: int) -> None:
    _run("reported", seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS[1:])
def test_parts(part: str, seed: int) -> None:
    _run(part, seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["repeated", "distinct", "loops", "gradients"])
def test_parts_without_kernels(part: str, seed: int) -> None:
    _run(part, seed, kernels=False)

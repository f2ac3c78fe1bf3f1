"""Products whose named sizes repeat, or are 0 at a call: an empty sum is 0.

IREE 3.13 packs operands such as [T,T,B] with a number of workgroups that it counts from the wrong
sizes: too few for some, and for B = 0 it divides by it, which ends the process.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from child import script
from sizes_child import PARTS


def _run(part: str, seed: int, **options: Any) -> None:
    said = script("sizes_child.py", part, seed, json.dumps(options))
    assert "wrong:" not in said, said[-2000:]
    assert "#" in said, said[-2000:]


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

"""Processes that end while daemon threads call, stream, train, load and compile: each with the code of its own.

`python tests/campaigns/ends.py --seconds 60 [--seed S] [--trial K]`
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import campaign
import numpy as np
from child import environment

CHILD = Path(__file__).parents[1] / "machine" / "ending_child.py"
CODES = {"exit": 7, "error": 1, "main": 0}
SHAPES = ["caller", "workers", "stream", "load", "train", "compile", "lower"]


def trial(rng: np.random.Generator, number: int) -> str:
    """One to eight threads; the end comes at any time."""
    how = str(rng.choice(list(CODES)))
    shapes = [str(s) for s in rng.choice(SHAPES, int(rng.integers(1, 9)))]
    command = [sys.executable, str(CHILD), how, f"{rng.uniform(0, 0.3):.3f}", *shapes]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=100)
    assert done.returncode == CODES[how], f"{how}, {shapes}: {done.returncode}, {done.stderr[-3000:]}"
    if how != "error":
        assert done.stderr == "", f"{how}, {shapes}: {done.stderr[-3000:]}"
    left = [p.name for p in Path.cwd().rglob("lstm-ir-*.tmp")]
    assert not left, f"{how}, {shapes}: left {left}"
    return how


if __name__ == "__main__":
    campaign.main(trial, seconds=110)

"""ruff and mypy --strict over the whole tree, with the settings in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("tool", [("ruff", "check", "."), ("mypy",)], ids=lambda t: t[0])
def test_clean(tool: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", *tool], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr

"""ruff, its formatter and mypy --strict over the whole tree, with the settings in pyproject.toml."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from paths import ROOT


def clean(*command: str, cwd: Path) -> None:
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff() -> None:
    clean("ruff", "check", ".", cwd=ROOT)


def test_format() -> None:
    clean("ruff", "format", "--check", ".", cwd=ROOT)


def test_mypy(tmp_path: Path) -> None:
    """On a copy where every folder stands at its import path, which is all that mypy looks at."""
    python = shutil.ignore_patterns("__pycache__", "golden", "data")
    for folder, place in (("lstm_ir", "lstm_ir"), ("passes", "lstm_ir/passes"),
                          ("backends", "lstm_ir/backends"), ("tests", "tests")):  # fmt: skip
        shutil.copytree(ROOT / folder, tmp_path / place, ignore=python)
    data = tmp_path / "lstm_ir" / "data"
    data.mkdir()
    shutil.copy(ROOT / "lstm_ir" / "data" / "__init__.py", data)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    clean("mypy", cwd=tmp_path)

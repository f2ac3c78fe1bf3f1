"""Where the tree is, and where its tests keep what they read."""

from __future__ import annotations

import tomllib
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
GOLDEN = TESTS / "golden"
DATA = TESTS / "data"
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"


def rooms() -> list[Path]:
    """The folders whose files tests import by bare names (pyproject.toml)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [ROOT / folder for folder in project["tool"]["pytest"]["ini_options"]["pythonpath"]]

"""Where the tree is, and where its tests keep what they read."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
GOLDEN = TESTS / "golden"
DATA = TESTS / "data"
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
IREE_RUN_MODULE = Path(sys.executable).parent / "iree-run-module"  # comes with the runtime
MODELS = ROOT.parent / "shared" / "models"  # of others: beside the checkout, where somebody put them


def rooms() -> list[Path]:
    """The folders whose files tests import by bare names (pyproject.toml)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [ROOT / folder for folder in project["tool"]["pytest"]["ini_options"]["pythonpath"]]


def files(folder: str) -> list[Path]:
    """The Python files of a folder of the tree, without those that are links to another folder."""
    return sorted(p for p in (ROOT / folder).rglob("*.py") if not _linked(p))


def _linked(path: Path) -> bool:
    return any((ROOT / "lstm_ir" / link) in path.parents for link in ("passes", "backends"))

"""docs/iree-workarounds.md names files that exist and tests that exist."""

from __future__ import annotations

import re

import pytest
from paths import DOCS, ROOT, TESTS

PAGE = (DOCS / "iree-workarounds.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and "::" in line
]


def _tests() -> dict[str, str]:
    return {p.name: p.read_text(encoding="utf-8") for p in TESTS.rglob("test_*.py")}


def test_there_are_rows() -> None:
    assert len(ROWS) > 20
    assert all(len(row) == 4 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r[0][:40])
def test_the_file_and_the_test_of_a_row_exist(row: list[str]) -> None:
    _, versions, files, tests = row
    assert re.search(r"\d", versions)
    named = re.findall(r"`([\w./]+)`(?: \(`(\w+)`\))?", files)
    assert named
    for file, function in named:
        assert (ROOT / file).is_file(), file
        assert f"def {function}(" in (ROOT / file).read_text() or not function, function
    texts, shown = _tests(), re.findall(r"`(test_\w+\.py)::(test_\w+)`", tests)
    assert shown
    for file, test in shown:
        assert f"def {test}(" in texts[file], f"{file}::{test}"

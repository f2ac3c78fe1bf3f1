"""The pages of the tutorial run as they stand, print what they say, and draw the pictures that they show.

`pytest --update-golden tests/documents/test_tutorial.py` writes what is printed and drawn into the pages anew.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from tutorial_page import FOLDER, PAGES, differences, pictures, prints, steps, written_anew


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_a_page_prints_and_draws_what_it_shows(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    page = path.read_text(encoding="utf-8")
    shutil.copytree(FOLDER / "data", tmp_path / "data")
    before = time.monotonic()
    printed = prints(page, tmp_path)
    print(f"{path.name}: {time.monotonic() - before:.1f} s")
    if request.config.getoption("--update-golden"):
        path.write_text(written_anew(page, printed), encoding="utf-8")
        for name in pictures(page):
            shutil.copy(tmp_path / name, FOLDER / name)
    shown = path.read_text(encoding="utf-8")
    found = [d for s, text in zip(steps(shown), printed, strict=True) for d in differences(s.printed, text, s.within)]
    assert not found, "\n".join(found)
    assert pictures(page)
    for name in pictures(page):
        drawn = (tmp_path / name).read_text(encoding="utf-8")
        assert drawn == (FOLDER / name).read_text(encoding="utf-8"), f"{name} is not what is drawn today"

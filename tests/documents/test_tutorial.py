"""The pages of the tutorial run as they stand, print what they say, and draw the pictures that they show.

`pytest --update-golden tests/documents/test_tutorial.py` writes what is printed and drawn into the pages anew.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest
from tutorial_page import FOLDER, PAGES, differences, pictures, prints, steps, written_anew


@pytest.mark.slow
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


SAID = "loss 0.50 of 30 steps, 0.04 ms\n[1 2]\n"


@pytest.mark.parametrize(
    ("printed", "within", "same"),
    [
        (SAID, 0.0, True),
        ("loss 0.50 of 30 steps, 17.00 ms\n[1  2]\n", 0.0, True),  # a time, and a blank more
        ("loss 0.50 of 30 steps, 0.04 ms\n[ 1 2 ]\n", 0.0, True),
        ("loss 0.54 of 30 steps, 0.04 ms\n[1 2]\n", 0.1, True),
        ("loss 0.54 of 30 steps, 0.04 ms\n[1 2]\n", 0.0, False),
        ("loss 0.56 of 30 steps, 0.04 ms\n[1 2]\n", 0.1, False),
        ("loss -0.50 of 30 steps, 0.04 ms\n[1 2]\n", 0.1, False),
        ("loss nan of 30 steps, 0.04 ms\n[1 2]\n", 0.1, False),
        ("loss 0.50 of 31 steps, 0.04 ms\n[1 2]\n", 0.1, False),
        ("loss 0.50 of 30 steps, 0.00 ms\n[1 2]\n", 0.1, False),
        ("loss 0.50 of 30 steps, 0.04 us\n[1 2]\n", 0.1, False),
        ("loss 0.50 of 30 steps, 0.04 ms\n[1 2 3]\n", 0.1, False),
        ("loss 0.50 of 30 steps, 0.04 ms\n", 0.1, False),
        ("gain 0.50 of 30 steps, 0.04 ms\n[1 2]\n", 0.1, False),
    ],
)  # fmt: skip
def test_a_line_that_differs_is_seen(printed: str, within: float, same: bool) -> None:
    assert (not list(differences(SAID, printed, within))) is same


def test_every_text_belongs_to_a_block_that_runs() -> None:
    """Otherwise nobody would compare it."""
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        assert page.count("```text\n") == sum(s.place is not None for s in steps(page)), path.name
        assert len(list(steps(page))) == len(re.findall(r"^```(?:python|sh)\n", page, re.M)), path.name


def test_the_index_names_every_page_in_its_order() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\d-[\w-]+\.md)\)", index) == [path.name for path in PAGES]
    for path, following in zip(PAGES, [*(p.name for p in PAGES[1:]), "README.md"], strict=True):
        assert f"]({following})" in path.read_text(encoding="utf-8").splitlines()[-1], path.name
    for path in PAGES:
        title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        assert f"[{title}]({path.name})" in index

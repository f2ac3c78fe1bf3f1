"""The page of choices says what the ops compute: every block of it is run."""

import re
from typing import Any

import pytest
from paths import DOCS

PAGE = (DOCS / "mpsgraph-choices.md").read_text(encoding="utf-8")
HEAD, *ROWS = re.split(r"^## ", PAGE, flags=re.MULTILINE)
TITLES = [row.partition("\n")[0] for row in ROWS]


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the blocks before have defined, as on the page."""
    found: dict[str, Any] = {}
    for code in blocks(HEAD):
        exec(code, found)
    return found


@pytest.mark.parametrize("title", TITLES)
def test_every_choice(title: str, names: dict[str, Any]) -> None:
    (row,) = (r for r in ROWS if r.startswith(title + "\n"))
    codes = blocks(row)
    assert codes
    assert "assert" in "".join(codes)
    if title.startswith(("8.", "9.")) and "GATES" not in names:  # this test alone
        exec(blocks(ROWS[6])[0], names)
    for code in codes:
        exec(code, names)


def test_every_choice_has_a_number() -> None:
    assert [t.partition(".")[0] for t in TITLES] == [str(i + 1) for i in range(len(TITLES))]
    assert "Not checked on Apple hardware" in (DOCS / "mpsgraph.md").read_text(encoding="utf-8")

"""The count of messages that tests hold counts right, and the document says what it counts."""

from __future__ import annotations

import ast
import re
from collections import Counter

import message_count
import pytest
from paths import ROOT

pytestmark = pytest.mark.xdist_group("syntax")

SOURCE = """
def f(a, b):
    if a:
        raise IRError(message("op", f"sizes {a} and {b} are not the same here"))
    need(b, "the second operand is a matrix")
    if b > a:
        raise CallError(f"{a}: expected a number of rows; got {b}")
    if b < a:
        raise CallError(f"{b}: expected a number of rows, and found {a}")
    if b == a:
        raise DimError("a name of no input")
    raise problem(a)
"""
TEXTS = [r"^second operand is a mat.* \(f32\)$", "expected a number of rows", "number of"]


def test_places_and_by_what_they_are_held() -> None:
    found = sorted(message_count.places(ast.parse(SOURCE), "f.py"), key=lambda p: p.line)
    assert [p.line for p in found] == [4, 5, 7, 9, 11, 12]
    assert found[0].pieces == ("are not the same here",)
    golden = "IRError: op: sizes 3 and 4 are not the same here"
    assert list(message_count.held(found, golden, TEXTS).values()) == [
        "golden", "test", "perhaps", "perhaps", "nothing", "no wording",
    ]  # fmt: skip
    assert list(message_count.held(found, "", [*TEXTS, "expected a number of rows, and found 7"]).values()) == [
        "nothing", "test", "perhaps", "test", "nothing", "no wording",
    ]  # fmt: skip


def test_the_document_says_what_is_counted() -> None:
    """To 25 places, so that not every new message changes the page."""
    page = " ".join((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
    found = re.search(
        r"Of ([\d,]+) places that refuse, goldens hold (\d+) and texts of other tests (\d+); (\d+) are perhaps held "
        r".*? no test has a text of (\d+), .*? and (\d+) have no wording",
        page,
    )
    assert found is not None
    places, *said = (int(n.replace(",", "")) for n in found.groups())
    assert places == sum(said)
    counted = Counter(message_count.counted().values())
    for word, n in zip(message_count.HELD, said, strict=True):
        assert abs(counted[word] - n) <= 25, f"{word}: {counted}; write it anew"

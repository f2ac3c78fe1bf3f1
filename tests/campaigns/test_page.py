"""The page on testing names every campaign, with its command, and the ledger names no other."""

from __future__ import annotations

import re
from pathlib import Path

import bad_places
import pytest
from paths import DOCS

PAGE = (DOCS / "testing.md").read_text(encoding="utf-8")
CAMPAIGNS = {p.stem for p in Path(__file__).parent.glob("*.py")
             if "\n    campaign.main(" in p.read_text(encoding="utf-8") and not p.name.startswith("test_")}  # fmt: skip


def test_every_campaign_has_its_rows() -> None:
    assert len(CAMPAIGNS) >= 5
    assert set(re.findall(r"^\| `python tests/campaigns/(\w+)\.py` \|", PAGE, re.M)) == CAMPAIGNS
    ledger = PAGE[PAGE.index("## Ledger") :]
    told = set(re.findall(r"^\| (\w+) \| [0-9]+ \| [0-9,]+ \|", ledger, re.M))
    assert told
    assert told <= CAMPAIGNS


LEDGER = PAGE[PAGE.index("## Ledger") : PAGE.index("### Totals")]
ROWS = re.findall(r"^\| ([\w ,]+) \| ([0-9,]+) \| ([0-9,a-z]+) \|$", PAGE[PAGE.index("### Totals") :], re.M)
TOTALS = {what: tried for what, tried, _ in ROWS}


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_every_aim_is_reached() -> None:
    assert all(number(tried) >= number(aim) for _, tried, aim in ROWS if aim != "none")


@pytest.mark.parametrize(
    ("what", "campaign"), [("graphs, compiled", "graphs"), ("graphs, through the passes alone", "passes")]
)
def test_totals_of_graphs_are_sums_of_exact_rows(what: str, campaign: str) -> None:
    exact = r"[^|]*graphs(?: or 8)?: ([0-9,]*[0-9])(?:, [^|]*)?"
    counts = re.findall(rf"^\| {campaign} \| [^|]* \| {exact} \|", LEDGER, re.M)
    assert len(counts) > 3
    assert sum(map(number, counts)) == number(TOTALS[what])


@pytest.mark.parametrize(
    ("what", "campaign"),
    [
        ("texts", "texts"),
        ("packages", "packages"),
        ("weight files", "weight_files"),
        ("kills", "kills"),
        ("ONNX files", "onnx_files"),
    ],
)
def test_totals_are_sums_of_the_ledger(what: str, campaign: str) -> None:
    trials = re.findall(rf"^\| {campaign}(?:, [^|]*)? \| [^|]* \| ([0-9,]+) \|", LEDGER, re.M)
    assert len(trials) > 1
    assert sum(number(n) for n in trials) == number(TOTALS[what])


def test_calls_are_sums_of_the_ledger() -> None:
    calls = re.findall(r"^\| threads[^|]* \| .* ([0-9,]+) calls", LEDGER, re.M)
    assert calls
    assert sum(number(n) for n in calls) == number(TOTALS["calls from threads"])


def test_every_place_is_told() -> None:
    names = [*bad_places.BY_ANYBODY, *bad_places.BY_ROOT]
    assert int(TOTALS["kinds of places"]) == len(names) == len(set(names))
    rows = PAGE[PAGE.index("### Places") : PAGE.index("## Ledger")]
    told = [name for row in re.findall(r"^\| (?:anybody|root)[^|]*\| (.*) \|$", rows, re.M) for name in row.split("; ")]
    assert told == names

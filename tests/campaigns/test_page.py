"""The page on testing names every campaign, with its command, and the ledger names no other."""

from __future__ import annotations

import re
from pathlib import Path

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

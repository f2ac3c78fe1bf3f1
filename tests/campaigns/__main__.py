"""The campaigns of a day, each for its share of the time: `python tests/campaigns --minutes 5 [--seed S] [NAME ...]`.

A campaign is a script of this folder that calls `campaign.main`. Random graphs are tried every day, for a quarter of
the time; the others every second day, so that each has time for many trials beside what it imports. The first trial
follows from the seed: a script that takes turns by numbers begins elsewhere every day.
Ends with code 1 if one found a defect, or ended no trial.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import campaign

FOLDER = Path(campaign.__file__).parent
EVERY_DAY = {"graphs"}
WEIGHTS = {"graphs": 3}  # of shares; 1 of the others
MINIMUM = 5  # seconds of a campaign, where the others took all
TURNS = 16  # the longest turn of a script: every 16th trial of graphs.py is on Vulkan


def scripts() -> list[Path]:
    """The campaigns, in the order of their names."""
    files = (p for p in sorted(FOLDER.glob("*.py")) if not p.name.startswith("test_"))
    return [p for p in files if "\n    campaign.main(" in p.read_text(encoding="utf-8")]


def today(names: Sequence[str], seed: int) -> list[str]:
    """Those of a day: the one that needs most time, and every other of the rest, in turns."""
    rest = [n for n in names if n not in EVERY_DAY]
    return [n for n in names if n in EVERY_DAY or rest.index(n) % 2 == seed % 2]


def share(name: str, rest: Sequence[str], seconds: float) -> float:
    """How many of the seconds that are left this one gets, where `rest` come behind it."""
    return seconds * WEIGHTS.get(name, 1) / (WEIGHTS.get(name, 1) + sum(WEIGHTS.get(n, 1) for n in rest))


def main() -> int:
    """Run those that the command line names, or those of the day."""
    names = {p.stem: p for p in scripts()}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--minutes", type=float, default=5, help="of all campaigns together")
    parser.add_argument("--seed", type=int, default=campaign.today(), help="by default the date, as in 20261123")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"there is no campaign {min(unknown)!r}")
    chosen = options.names or today(list(names), options.seed)
    end = time.monotonic() + 60 * options.minutes
    codes = []
    for k, name in enumerate(chosen):  # one that took longer for its first trial leaves less to the others
        seconds = max(MINIMUM, share(name, chosen[k + 1 :], end - time.monotonic()))
        words = ["--seconds", f"{seconds:g}", "--seed", str(options.seed), "--from", str(options.seed % TURNS)]
        codes.append(subprocess.run([sys.executable, str(names[name]), *words]).returncode)
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())

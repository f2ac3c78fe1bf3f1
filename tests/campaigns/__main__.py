"""Every campaign for its share of the time: `python tests/campaigns --minutes 5 [--seed S] [NAME ...]`.

A campaign is a script of this folder that calls `campaign.main`. Ends with code 1 if one found a defect.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import campaign

FOLDER = Path(campaign.__file__).parent


def scripts() -> list[Path]:
    """The campaigns, in the order of their names."""
    files = (p for p in sorted(FOLDER.glob("*.py")) if not p.name.startswith("test_"))
    return [p for p in files if "\n    campaign.main(" in p.read_text(encoding="utf-8")]


def main() -> int:
    """Run those that the command line names, or all."""
    names = {p.stem: p for p in scripts()}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--minutes", type=float, default=5, help="of all campaigns together")
    parser.add_argument("--seed", type=int, default=campaign.today(), help="by default the date, as in 20261123")
    options = parser.parse_args()
    chosen = options.names or list(names)
    if unknown := set(chosen) - set(names):
        parser.error(f"there is no campaign {min(unknown)!r}")
    share = 60 * options.minutes / max(1, len(chosen))
    words = ["--seconds", f"{share:g}", "--seed", str(options.seed)]
    codes = [subprocess.run([sys.executable, str(names[n]), *words]).returncode for n in chosen]
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())

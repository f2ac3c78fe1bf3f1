"""A page of the tutorial as a program: its blocks in order, what each prints, and what the page says that it prints.

A block of `python` runs, unless its first line names a file (`# file: load.py`): then it is written there. Of a block
of `sh` each line runs; a server goes on until the page ends. A block of `text` behind one of these is all it prints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from child import python
from paths import DOCS

FOLDER = DOCS / "tutorial"
PAGES = sorted(FOLDER.glob("[0-9]-*.md"))
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
_PICTURE = re.compile(r"!\[[^\]]+\]\((\S+\.svg)\)")
_WITHIN = re.compile(r"within ([\d.]+) %")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?: (?:ms|us|s)\b)?")
_TIME = (" ms", " us", " s")


@dataclass(frozen=True)
class Step:
    """One block that runs, where the text of what it prints stands in the page, and the lines below that text."""

    kind: str
    code: str
    printed: str
    place: tuple[int, int] | None
    below: str

    @property
    def within(self) -> float:
        """By which share numbers with a point may differ; the paragraph below the text says it."""
        found = _WITHIN.search(self.below)
        return float(found[1]) / 100 if found else 0.0


def steps(page: str) -> Iterator[Step]:
    blocks = list(_FENCED.finditer(page))
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        if block[1] not in ("python", "sh"):
            continue
        if after is None or after[1] != "text":
            yield Step(block[1], block[2], "", None, "")
        else:
            below = page[after.end() :].split("\n\n")[1]
            yield Step(block[1], block[2], after[2], after.span(2), below.replace("\n", " "))


def pictures(page: str) -> list[str]:
    return _PICTURE.findall(page)


def prints(page: str, folder: Path) -> list[str]:
    """What each step of the page prints, in a process of its own whose working folder is `folder`."""
    script = Path(__file__).with_name("run_tutorial.py")
    file = folder / "steps.json"
    file.write_text(json.dumps([(s.kind, s.code) for s in steps(page)]), encoding="utf-8")
    python(script, file, timeout=240)
    printed: list[str] = json.loads(file.with_suffix(".printed").read_text(encoding="utf-8"))
    return printed


def written_anew(page: str, printed: list[str]) -> str:
    """The page with what its blocks print today."""
    for step, text in reversed(list(zip(steps(page), printed, strict=True))):
        if step.place is not None:
            page = page[: step.place[0]] + text + page[step.place[1] :]
    return page


def differences(said: str, printed: str, within: float) -> Iterator[str]:
    """Lines that are not as the page says.

    Words and whole numbers are equal. Numbers with a point differ by no more than the share `within`, and half a unit
    of their last digit. Numbers of ms, us or s are times, of which only their being above 0 is known.
    """
    lines, others = said.splitlines(), printed.splitlines()
    if len(lines) != len(others):
        yield f"the page has {len(lines)} lines, printed are {len(others)}"
    for line, other in zip(lines, others, strict=False):
        numbers, found = _NUMBER.findall(line), _NUMBER.findall(other)
        if _words(line) != _words(other) or not all(map(_agree, numbers, found, [within] * len(numbers))):
            yield f"the page says {line!r}, printed is {other!r}"


def _words(line: str) -> list[str]:
    """What a line has beside numbers. NumPy fills shorter numbers up with blanks, before a bracket too."""
    return re.split(r"\s+", re.sub(r"(?<=\[)\s+|\s+(?=\])", "", _NUMBER.sub("#", line)))


def _agree(said: str, found: str, within: float) -> bool:
    if said.endswith(_TIME):
        return found.endswith(said[said.index(" ") :]) and float(found.split()[0]) > 0
    if found.endswith(_TIME) or not within or ("." not in said and "e" not in said):
        return said == found
    mantissa, _, power = said.partition("e")
    unit = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
    return abs(float(said) - float(found)) <= within * abs(float(said)) + unit / 2

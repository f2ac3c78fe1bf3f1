"""Which nodes and lines of the user's graph each dispatch of a module computes."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

_EXPORT = re.compile(r"\bexecutable\.export public @([\w$.]+)")
_CALL = re.compile(r"\bflow\.dispatch @[\w$.]+::@([\w$.]+)")
_PLACE = re.compile(r'"([\w.]+)"\("([^"]*)":(\d+):\d+\)')
_WORK = re.compile(r"= (?:linalg|iree_linalg_ext|tensor\.(?:pad|concat|generate)|arith|math)\b")
_LEAVES = ("constant", "weight", "parameter")


@dataclass(frozen=True, order=True)
class DispatchPlace:
    """A node's op and the user's line."""

    file: str
    line: int
    op: str

    def __str__(self) -> str:
        return f"{self.op} at {self.file}:{self.line}"


def dispatch_places(flow: str) -> dict[str, tuple[DispatchPlace, ...]]:
    """Dispatch name -> places, from the module's text after IREE formed its dispatches.

    `flow` has one location per line (--compile-to=flow --mlir-print-debuginfo
    --mlir-print-local-scope). A dispatch has the lines of the ops inside it; a kernel, which has no
    lines inside, those of its calls.
    """
    inside: dict[str, dict[DispatchPlace, None]] = {}
    calls: dict[str, dict[DispatchPlace, None]] = {}
    current: str | None = None
    for line in flow.splitlines():
        export = _EXPORT.search(line)
        if export is not None:
            current = export[1]
            inside[current] = {}
            continue
        call = _CALL.search(line)
        if call is not None:
            calls.setdefault(call[1], {}).update(dict.fromkeys(_places(line)))
        elif line.startswith("  util.func"):
            current = None
        elif current is not None and _WORK.search(line):
            inside[current].update(dict.fromkeys(_places(line)))
    found = {}
    for name in inside | calls:
        own = inside.get(name, {})
        at = own if own else calls.get(name, {})
        shown = [p for p in at if p.op not in _LEAVES]
        found[name] = tuple(sorted(shown if shown else at))
    return found


def call_sites(flow: str) -> dict[str, int]:
    """Dispatch name -> at how many places of the module it is called."""
    return Counter(_CALL.findall(flow))


def _places(line: str) -> list[DispatchPlace]:
    at = line.find(" loc(")
    return [DispatchPlace(file, int(n), op) for op, file, n in _PLACE.findall(line[max(at, 0) :])]

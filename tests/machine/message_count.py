"""How many messages of refusals a test holds: python tests/machine/message_count.py [--list].

A place that refuses is a `raise` that makes its error, or a call that does (`need`, `refuse`, `fail`, `fault`), in
lstm_ir/, passes/ or backends/. What is written out there, between fields, are its pieces. It is held

    by a golden:    a golden of messages has its longest piece;
    by a test:      a text of a test has its longest piece, or has or is a part of some piece that no other place has;
    perhaps:        a text of a test has or is a part of a piece that other places have too.

Read from the texts, not from a run: of places with the same wording a test may reach one alone, and a wording that a
test builds from parts is not found. What is short, or comes from elsewhere, has no wording of its own.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from paths import GOLDEN, ROOT, TESTS, files
from syntax import parsed

REFUSING = {"need", "refuse", "fail", "fault"}  # calls that raise, or make what is raised, without a leading _
WORDING = 8  # letters of a piece, at least
PART = 10  # letters of a part that a test has, at least, and two words
HELD = ("golden", "test", "perhaps", "nothing", "no wording")
# Between these a pattern of a test has plain text.
PATTERN = re.compile(r"\.[*+]|\\[dswbDSW][+*?]?|(?<!\\)\[(?:\\.|[^\]\\])*\][+*?]?|(?<!\\)[|^$()]|(?<!\\)\{[^}]*\}")
EDGES = " :;,.()'`\""  # of a piece, beside a field
ESCAPE = re.compile(r"\\([^\w\s]|\s)")


Pieces = tuple[str, ...]


class Place(NamedTuple):
    """Where something is refused."""

    path: str
    line: int
    pieces: Pieces  # the longest first; empty: it has no wording of its own


def plain(text: str) -> str:
    """With one blank wherever there are several, or a new line."""
    return " ".join(text.split())


def texts(n: ast.AST) -> Iterator[str]:
    """Every text that is written out in a piece of code; one with fields as its parts."""
    return (m.value for m in ast.walk(n) if isinstance(m, ast.Constant) and isinstance(m.value, str))


def places(tree: ast.Module, path: str) -> Iterator[Place]:
    """Of one file."""
    inside = set[int]()
    for n in ast.walk(tree):  # outer nodes come before inner ones
        raised = n.exc if isinstance(n, ast.Raise) else n
        if id(n) in inside or not isinstance(raised, ast.Call):
            continue
        name = ast.unparse(raised.func).rpartition(".")[2].lstrip("_")
        if isinstance(n, ast.Raise) or name in REFUSING:
            inside.update(id(m) for m in ast.walk(n))
            operands = [*raised.args, *(k.value for k in raised.keywords)]
            pieces = {p for o in operands for t in texts(o) if len(p := plain(t).strip(EDGES)) >= WORDING}
            yield Place(path, raised.lineno, tuple(sorted(pieces, key=lambda p: (-len(p), p))))


def of_project() -> list[Place]:
    """Of all files that are shipped."""
    paths = (*files("lstm_ir"), *files("passes"), *files("backends"))
    return [p for f in paths for p in places(parsed(f), f.relative_to(ROOT).as_posix())]


def goldens() -> str:
    """All goldens that are texts."""
    return "\n".join(plain(p.read_text(encoding="utf-8")) for p in sorted(GOLDEN.rglob("*.txt")))


def said_by_tests() -> set[str]:
    """Texts of tests that are long enough to hold a wording."""
    own = {Path(__file__), TESTS / "house" / "test_message_count.py"}
    trees = (parsed(p) for p in sorted(TESTS.rglob("*.py")) if p not in own)
    return {t for tree in trees for t in texts(tree) if len(t) >= WORDING and " " in t}


def held(found: Iterable[Place], golden: str, said: Iterable[str]) -> dict[Place, str]:
    """By what each place is held: a word of HELD."""
    found, said = list(found), list(said)
    whole = "\0".join(plain(t) for s in said for t in {s, ESCAPE.sub(r"\1", s)})
    having: dict[str, set[Pieces]] = defaultdict(set)
    for p in found:
        for piece in p.pieces:
            having[piece].add(p.pieces)
    every, reached = "\0".join(having), set[frozenset[Pieces]]()
    parts = {plain(ESCAPE.sub(r"\1", part)) for s in said for part in (s, *PATTERN.split(s))}
    for part in filter(_long, parts):
        if part in every:
            reached.add(frozenset[Pieces]().union(*(at for piece, at in having.items() if part in piece)))
    reached.update(frozenset(at) for piece, at in having.items() if _long(piece) and piece in whole)
    alone = {pieces for at in reached if len(at) == 1 for pieces in at}
    return {p: _held(p.pieces, golden, whole, alone, {pieces for at in reached for pieces in at}) for p in found}


def _long(part: str) -> bool:
    return len(part) >= PART and " " in part


def _held(pieces: Pieces, golden: str, whole: str, alone: Collection[Pieces], reached: Collection[Pieces]) -> str:
    if not pieces:
        return "no wording"
    if pieces[0] in golden:
        return "golden"
    if pieces[0] in whole or pieces in alone:
        return "test"
    return "perhaps" if pieces in reached else "nothing"


def counted() -> dict[Place, str]:
    """The places of the project."""
    return held(of_project(), goldens(), said_by_tests())


def main() -> None:
    found = counted()
    rooms: dict[str, Counter[str]] = {}
    for p, by in found.items():
        parts = p.path.split("/")
        rooms.setdefault("/".join(parts[:2] if len(parts) > 2 else parts[:1]), Counter())[by] += 1
    print(f"{'':24}{'places':>8}" + "".join(f"{word:>12}" for word in HELD))
    for room, of in (*sorted(rooms.items()), ("all", Counter(found.values()))):
        print(f"{room:24}{of.total():8}" + "".join(f"{of[word]:12}" for word in HELD))
    if "--list" in sys.argv:
        for p, by in found.items():
            if by == "nothing":
                print(f"{p.path}:{p.line}: {' … '.join(p.pieces)}")


if __name__ == "__main__":
    main()

"""Which tests are slow, in which order they run, and which of them a short run leaves out.

    pytest --junitxml=run.xml; python tests/machine/selection.py run.xml

writes `in_turns.txt` anew: the tests of which a case took SECONDS in that run, and those that it left out.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Container, Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

_started = time.monotonic()
DAYS = 8  # in which the runs of whole days have run every case
MANY = 4  # cases of a test, from which they take turns
SECONDS = 2  # of a case on two slow cores, from which a test takes turns whatever the number of its cases
DAILY = ("tests/house/", "tests/documents/test_readme.py", "tests/demo/")  # never by turns: style, and the two commands
LISTED = Path(__file__).with_name("in_turns.txt")


def mark(items: list[pytest.Item]) -> None:
    """Mark the cases `slow` of which their test, or its file, says so."""
    for item in items:
        slow = any(item.get_closest_marker(*m.args) for m in item.iter_markers("slow_on"))
        if slow or any(_fits(item, m.kwargs) for m in item.iter_markers("slow_cases")):
            item.add_marker(pytest.mark.slow)


def _fits(item: pytest.Item, values: Mapping[str, Container[object]]) -> bool:
    assert isinstance(item, pytest.Function)
    params = item.callspec.params
    if values.keys() - params.keys():
        raise pytest.UsageError(f"{item.nodeid}: slow_cases names no parameters: {sorted(values)}")
    return all(params[name] in among for name, among in values.items())


def group(items: list[pytest.Item]) -> None:
    """Tests that share a fixture of their file go to one worker, which makes it once."""
    for item in items:
        assert isinstance(item, pytest.Function)
        found = item._fixtureinfo.name2fixturedefs.values()
        shared = any(d.scope == "module" for defs in found for d in defs)
        if shared and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def in_turns(items: list[pytest.Item]) -> None:
    """A case of every test, then another of every test, ...: a run that ends early has run some of
    each. Which case comes first changes by the day."""
    cases: dict[object, list[pytest.Item]] = {}
    for item in items:
        marks = [item.get_closest_marker(m) is not None for m in ("slow", "long")]
        test = item.nodeid if item.get_closest_marker("together") else item.nodeid.partition("[")[0]
        cases.setdefault((test, *marks), []).append(item)
    day, turns = int(time.time() // 86400), {}
    for like in cases.values():
        turns.update({item: (i - day) % len(like) for i, item in enumerate(like)})
    items.sort(key=turns.__getitem__)


def listed() -> set[str]:
    """The tests that take turns because they take long."""
    return set(LISTED.read_text(encoding="utf-8").split())


def _test(nodeid: str) -> str:
    """The name of a case's test, without its parameters and without the group that xdist adds."""
    return nodeid.partition("[")[0].partition("@")[0]


def _shared(item: pytest.Item) -> bool:
    """Whether the item uses a fixture of its file that takes long (`one_day`)."""
    used = getattr(item, "fixturenames", ())
    return any(name in used for mark in item.iter_markers("one_day") for name in mark.args)


def _by_files(items: list[pytest.Item], day: int) -> set[pytest.Item]:
    """All tests over the long fixtures of today's files."""
    files = sorted({item.path for item in items})
    return {item for item in items if item.path in files[day % DAYS :: DAYS]}


def of_today(items: list[pytest.Item]) -> list[pytest.Item]:
    """Of tests with many cases, and of those that take long, the cases of today, one share of DAYS; all of the others.

    The day follows from the name. A test with many cases that take no long has one case at least. Tests that share a
    long fixture (`one_day`) have a day for the whole file: the fixture is made on that day alone.
    """
    day, long = int(time.time() // 86400), listed()
    chosen = _by_files([i for i in items if _shared(i)], day)
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not _shared(item):
            cases.setdefault(_test(item.nodeid), []).append(item)
    for name, like in cases.items():
        today = [i for i in like if (zlib.crc32(i.nodeid.encode()) + day) % DAYS == 0]
        if name not in long:
            today = like if len(like) < MANY else today or like[:1]
        chosen.update(today)
    return [item for item in items if item in chosen]


def leave_out(minutes: float) -> None:
    """Skip the test if this run has taken so long."""
    if time.monotonic() - _started > 60 * minutes:
        pytest.skip(f"the {minutes:g} minutes of --within are over")


def rewrite(run: Path) -> None:
    """The list, from the durations of a run; a test that it left out stays where it is."""
    longest: dict[str, float] = {}
    for case in ElementTree.parse(run).getroot().iter("testcase"):
        name = f"{case.attrib['classname'].replace('.', '/')}.py::{_test(case.attrib['name'])}"
        longest[name] = max(longest.get(name, 0.0), float(case.attrib["time"]))
    long = {n for n, seconds in longest.items() if seconds >= SECONDS and not n.startswith(DAILY)}
    LISTED.write_text("".join(f"{n}\n" for n in sorted((listed() - longest.keys()) | long)), encoding="utf-8")


if __name__ == "__main__":
    rewrite(Path(sys.argv[1]))

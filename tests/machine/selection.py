"""Which tests are slow, in which order they run, and which of them a short run leaves out."""

from __future__ import annotations

import time
import zlib
from collections.abc import Container, Mapping

import pytest

_started = time.monotonic()
DAYS = 6  # in which the runs of whole days have run every case
MANY = 4  # cases of a test, from which they take turns


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


def of_today(items: list[pytest.Item]) -> list[pytest.Item]:
    """Of tests with many cases those of today, one share of DAYS; all of the others. The day follows from the name."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    day, chosen = int(time.time() // 86400), set[pytest.Item]()
    for like in cases.values():
        today = [i for i in like if (zlib.crc32(i.nodeid.encode()) + day) % DAYS == 0]
        chosen.update(like if len(like) < MANY else today or like[:1])
    return [item for item in items if item in chosen]


def leave_out(minutes: float) -> None:
    """Skip the test if this run has taken so long."""
    if time.monotonic() - _started > 60 * minutes:
        pytest.skip(f"the {minutes:g} minutes of --within are over")

"""Seconds that callers give: no number is too large to be waited, and what is no number is refused by name."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ir.errors import CallError
from lstm_ir.serving.durations import LONGEST, deadline, seconds

HUGE: list[Any] = [9.3e9, 1e10, 1e300, 10**400]
ids = ["above what is waited", "1e10", "1e300", "10**400"]


@pytest.fixture(scope="module")
def exe() -> Iterator[Any]:
    """Running sums of rows."""
    x, s = li.input("x", ("B", 2)), li.input("s", ("B", 2))
    with li.compile(li.stateful(li.Graph("sums", [x, s], {"y": s + x, "s_n": s + x}), {"s": "s_n"})) as made:
        yield made


@pytest.fixture(scope="module")
def twice() -> Iterator[Any]:
    x = li.input("x", ("B", 2))
    with li.compile(li.Graph("twice", [x], {"y": x + x})) as made:
        yield made


def row(value: float) -> dict[str, Any]:
    return {"x": np.full((1, 2), value, np.float32)}


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, True, "1", None], ids=str)
def test_what_is_no_number_of_seconds(value: Any) -> None:
    with pytest.raises(CallError, match=r"pause is .*; expected seconds, a finite number of 0 or more"):
        seconds("pause", value)


@pytest.mark.parametrize("value", HUGE, ids=ids)
def test_no_duration_is_more_than_can_be_waited(value: Any) -> None:
    assert seconds("pause", value) == LONGEST < threading.TIMEOUT_MAX
    until = deadline(value, 1e6)
    assert until is not None
    assert until - 1e6 < threading.TIMEOUT_MAX


@pytest.mark.parametrize("value", HUGE, ids=ids)
def test_huge_timeouts_of_calls(exe: Any, twice: Any, value: Any) -> None:
    with li.Batcher(twice, max_delay=0.0, check=False) as batcher:
        assert batcher(row(1), timeout=value)["y"][0, 0] == 2
        assert batcher.submit(row(2), timeout=value).result(60)["y"][0, 0] == 4
    with li.Sessions(exe, max_delay=0.0, check=False) as sessions, sessions.open() as one:
        assert one(row(1), timeout=value)["y"][0, 0] == 1
        one.set_state(one.state(timeout=value), timeout=value)
        assert one.submit(row(1), timeout=value).result(60)["y"][0, 0] == 2


@pytest.mark.parametrize("value", HUGE, ids=ids)
def test_huge_limits(exe: Any, twice: Any, value: Any) -> None:
    """Requests that wait for others without end are answered once nobody else may come."""
    batcher = li.Batcher(twice, max_delay=value, check=False)
    futures = [batcher.submit(row(v)) for v in (1, 2)]
    batcher.close()
    assert [f.result(60)["y"][0, 0] for f in futures] == [2, 4]
    with li.Sessions(exe, idle_timeout=value, max_delay=0.0, check=False) as sessions:
        assert sessions.open()(row(1))["y"][0, 0] == 1

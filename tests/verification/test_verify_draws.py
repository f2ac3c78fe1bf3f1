"""`li.verify`: sizes of many names, numbers of NumPy's, and inputs of any name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.verification.compare import Tolerance, difference
from lstm_ir.verification.draw import REACH, draw_sizes


def negated(*inputs: li.Value) -> li.Graph:
    """For each input an output that is minus it."""
    return li.Graph("g", list(inputs), {f"y{i}": -x for i, x in enumerate(inputs)})


def test_more_names_of_sizes_than_sizes_that_are_drawn() -> None:
    graph = negated(*(li.input(f"x{i}", (f"N{i}",)) for i in range(24)))
    entry = li.Program.of(graph).signature().entries["main"]
    sizes = draw_sizes(entry, {}, np.random.default_rng(0), 0, REACH[0])
    assert set(sizes) == {f"N{i}" for i in range(24)}
    assert all(1 <= n <= REACH[0] for n in sizes.values())
    assert len({*sizes.values()}) > 12  # as different as may be


def test_calls_sizes_and_seeds_are_numbers_of_numpy_too() -> None:
    numbers: dict[str, Any] = {"sizes": {"T": [np.int64(3)]}, "calls": np.int64(1), "seed": np.int64(5)}
    graph = negated(li.input("x", ("T", 2)))
    found = li.verify(graph, against=lambda a: {"y0": -a["x"]}, seconds=0.0, cold=False, **numbers)
    assert json.loads(json.dumps(found.as_json()))["ok"] is True


def test_an_input_may_have_the_name_of_an_argument(tmp_path: Path) -> None:
    """Of `np.savez`, which had written the arrays for the processes of cold starts."""
    made = li.export(
        negated(li.input("file", (3,)), li.input("allow_pickle", (2,))), tmp_path / "m.lirpkg", ["cpu:host"]
    )
    with li.load(made) as exe:
        found = li.verify(exe, against=lambda a: {"y0": -a["file"], "y1": -a["allow_pickle"]}, seconds=0.0, cold=True)
    assert found.ok
    assert found.cold_start is not None


def test_a_target_is_of_a_graph_alone() -> None:
    graph = negated(li.input("x", (3,)))
    with li.compile(graph) as exe, pytest.raises(li.CallError, match="an executable is taken as it is"):
        li.verify(exe, against=lambda a: {"y0": -a["x"]}, target="cpu", seconds=0.0, cold=False)
    found = li.verify(graph, against=lambda a: {"y0": -a["x"]}, target="cpu:host", seconds=0.0, cold=False)
    assert (found.ok, found.target) == (True, "cpu:host")


@pytest.mark.parametrize("name", ["absolute", "relative"])
def test_limits_are_finite(name: str) -> None:
    """With a limit without an end NaN would be right."""
    options: dict[str, Any] = {name: float("inf"), "seconds": 0.0, "cold": False}
    with pytest.raises(li.CallError, match=f"verify: {name} is inf, not a finite number of 0 or more"):
        li.verify(negated(li.input("x", (3,))), against=lambda a: {"y0": -a["x"]}, **options)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_no_limit_takes_nan_or_infinity_for_a_number(odd: float) -> None:
    """Limits that are finite may have a sum that is not."""
    port = li.Program.of(negated(li.input("x", (2,)))).signature().entries["main"].outputs[0]
    want, got = np.array([5, 3e38], "f4"), np.array([odd, 3e38], "f4")
    found = difference(port, got, want, Tolerance(1e308, 1e308))
    assert not isinstance(found, str)
    assert (found.absolute, found.ok) == (np.inf, False)


@pytest.mark.parametrize(
    ("name", "ends", "why"),
    [
        ("n", (0.5, 3), "the range of n is 0.5..3; expected one of whole numbers, as n has them \\(i32\\)"),
        ("n", (0, 2.5), "the range of n is 0..2.5; expected one of whole"),
        ("b", (0, 1), "b has a range, and its elements are booleans, which have none"),
    ],
)
def test_ranges_are_of_the_kind_of_an_input(name: str, ends: tuple[float, float], why: str) -> None:
    n, b = li.input("n", ("T",), "i32"), li.input("b", ("T",), "i1")
    graph = li.Graph("g", [n, b], {"y": -n, "z": ~b})
    how: dict[str, Any] = {"against": lambda a: {"y": -a["n"], "z": ~a["b"]}, "seconds": 0.0, "cold": False}
    with pytest.raises(li.CallError, match=why):
        li.verify(graph, ranges={name: ends}, **how)
    assert li.verify(graph, ranges={"n": (1.0, 3.0)}, **how).ok

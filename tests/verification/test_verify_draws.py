"""`li.verify`: sizes of many names, numbers of NumPy's, and inputs of any name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
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

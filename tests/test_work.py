"""How much a graph computes, and the CPU driver that follows from it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import LARGE, LEAST, SMALL, cpu_driver, helped
from lstm_ir.backends.run import runtime
from lstm_ir.bench.overhead import empty_call
from lstm_ir.ir import dims
from lstm_ir.ir.work import operations
from lstm_ir.passes.base import Pipeline


def lstm(T: int | str, H: int) -> li.Graph:
    x, w = li.input("x", (T, 1, H)), li.weight("w", np.zeros((4 * H, H), np.float32))
    return li.Graph("g", [x], {"y": li.lstm(x, w, w)[0]})


def test_products_count_twice_and_loops_their_length() -> None:
    a, b = li.input("a", ("B", 3)), li.weight("b", np.zeros((3, 5), np.float32))
    graph = li.Graph("g", [a], {"y": li.tanh(a @ b)})
    assert operations(graph) == dims.mul(dims.name("B"), 2 * 3 * 5 + 5)
    made = Pipeline.parse("core,decompose").run(lstm("T", 8), None).graph
    per_step = dims.evaluate(operations(made), {"T": 1})
    assert 2 * 4 * 8 * 16 <= per_step < 2 * 4 * 8 * 16 + 40 * 8
    assert dims.evaluate(operations(made), {"T": 7}) == 7 * per_step


def test_small_calls_stay_in_the_callers_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime._process, "threads", 2)
    assert cpu_driver({"main": SMALL - 1}, False)[0] == "local-sync"
    assert cpu_driver({"a": 5, "b": SMALL}, False)[0] == "local-task"
    assert cpu_driver({"a": 5, "b": SMALL}, True)[0] == "local-sync"
    assert cpu_driver({"a": 5, "b": dims.name("T")}, False) == (
        "local-task",
        "driver local-task: sizes are known at the call",
    )
    monkeypatch.setattr(runtime._process, "threads", 1)
    assert cpu_driver({"b": dims.name("T")}, False)[0] == "local-sync"


def test_helpers_are_for_calls_that_are_short_but_worth_sharing() -> None:
    def ask(n: dims.Dim, threads: int = 2) -> bool:
        return helped({"a": 5, "b": n}, threads)

    assert [ask(n) for n in (LEAST - 1, LEAST, LARGE - 1, LARGE)] == [False, True, True, False]
    assert not ask(dims.name("T"))
    assert [ask(n, threads=64) for n in (SMALL - 1, SMALL)] == [True, False]
    assert not ask(LEAST, threads=1)


def test_the_report_says_which_and_the_device_decides() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import lstm_ir as li; from test_work import lstm\n"
        "li.set_threads(2)\n"
        "for d in (None, 'local-task'):\n"
        "    e = li.compile(lstm(3, 8), device=d); print(e.device, [n for n in e.report.notes if 'driver' in n])"
    )
    command = [sys.executable, "-c", code, str(__file__).rpartition("/")[0]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first.startswith("local-sync ['driver local-sync: ")
    assert second == "local-task []"


def test_an_empty_call_is_measured_on_both_drivers() -> None:
    found = empty_call()
    assert set(found) == {"local-sync", "local-task"}
    assert all(0 < t < 0.05 for t in found.values())

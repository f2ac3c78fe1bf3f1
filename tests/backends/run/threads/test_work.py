"""How much a graph computes, and the CPU driver that follows from it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.backends.run.threads.choice import HELPED, LARGE, LOOPS, SMALL, Choice, choose, may_help
from lstm_ir.bench.measure import empty_call
from lstm_ir.ir import dims
from lstm_ir.ir.operations import operations
from lstm_ir.ir.work import CallWork
from lstm_ir.passes.pipeline import Pipeline


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


def ask(n: int | None, threads: int = 2, published: int = 1, loops: int = 1) -> Choice:
    return choose(n, loops, published, threads)


def test_small_calls_stay_in_the_callers_thread() -> None:
    assert ask(0, published=0).driver == ask(SMALL - 1, published=0).driver == "local-sync"
    assert ask(SMALL, published=0).driver == "local-task"
    assert ask(SMALL, published=1).driver == "local-sync"
    unknown = ask(None, published=0)
    assert str(unknown) == "driver local-task: its operations are not known"
    assert ask(None, published=0, threads=1).driver == "local-sync"


def test_operations_follow_from_the_sizes_of_a_call() -> None:
    work = CallWork(dims.mul(dims.name("T"), 7), 1, 1)
    assert (work.known(), work.at({"T": 5, "B": 2}), work.at({"B": 2})) == (None, 35, None)
    assert CallWork(12, 1, 1).known() == CallWork(12, 1, 1).at({}) == 12


def test_helpers_are_for_calls_that_are_short_but_worth_sharing() -> None:
    def helped(n: int, threads: int = 2) -> bool:
        return ask(n, threads).helpers > 0

    sizes = (HELPED - 1, HELPED, LARGE - 1, LARGE)
    assert [helped(n) for n in sizes] == [False, True, True, False]
    assert [helped(n, threads=64) for n in (SMALL - 1, SMALL)] == [True, False]
    assert not helped(HELPED, threads=1)


def test_helpers_are_for_kernels_that_offer_their_work_in_few_loops() -> None:
    assert ask(HELPED, threads=3).helpers == 2
    assert ask(HELPED, threads=4).helpers == ask(HELPED, threads=64).helpers == 3
    assert ask(HELPED, published=0).helpers == 0
    assert [ask(HELPED, loops=n).helpers for n in (LOOPS, LOOPS + 1)] == [1, 0]
    assert str(ask(HELPED)) == f"driver local-sync with helpers: {HELPED} operations in a call"


def test_a_module_is_made_for_helpers_where_some_call_may_have_them() -> None:
    """As `choose` says it, for some process and some sizes."""
    for n in (None, 0, HELPED - 1, HELPED, SMALL, LARGE - 1, LARGE):
        for loops in (1, LOOPS, LOOPS + 1):
            for published in (0, 1):
                for always in (False, True):
                    tried = [HELPED, SMALL] if n is None else [n]
                    some = any(
                        choose(m, loops, published, threads, always=always).helpers
                        for m in tried
                        for threads in (2, 64)
                    )
                    assert may_help(n, loops, published, always=always) == some


@pytest.mark.parametrize("weight_first", [False, True])
def test_a_module_offers_what_it_may(weight_first: bool) -> None:
    """A product whose rows are a weight's has a kernel for workers, and none that is published."""
    w = li.weight("w", np.zeros((512, 512), np.float32))
    x = li.input("x", (512, 512))
    product = w @ x if weight_first else x @ w
    lowered = prepare(li.Graph("g", [x], {"y": product}), resolve("cpu"), None, helpers=True)
    alone = prepare(li.Graph("g", [x], {"y": product}), resolve("cpu"), {"helpers": False}, helpers=True)
    assert (lowered.text == alone.text) is weight_first
    assert [w.published for w in lowered.work.values()] == [0 if weight_first else 1]
    assert [w.published for w in alone.work.values()] == [0]


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

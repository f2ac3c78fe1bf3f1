"""A loop that runs no step demands nothing of what its body alone computes; with steps it does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.run.executable import Executable

TABLE = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
X = np.ones((4, 2), np.float32)
Value = li.Value
Array = np.ndarray[Any, Any]


def _picked(length: int | str, counted: bool) -> li.Graph:
    """Adds rows i + 1 of a table in each step."""
    x, i, n = li.input("x", (length, 2)), li.input("i", (2,), "i32"), li.input("n", (), "i32")
    table = li.weight("table", TABLE)

    def cell(h: Value, row: Value) -> tuple[Value, tuple[()]]:
        return h + row * li.sum(li.take(table, i + 1), 0), ()

    h, _ = li.scan(cell, li.zeros((2,)), x, count=n if counted else None)
    return li.Graph("picked", [x, i, *([n] if counted else [])], {"h": h, "loss": li.sum(h)})


def _nested() -> li.Graph:
    """The inner loop has n steps, the outer one as many as x has rows; n is from 0 on."""
    x, i, n = li.input("x", (4, 2)), li.input("i", (2,), "i32"), li.input("n", (), "i32")

    def outer(h: Value, row: Value) -> tuple[Value, tuple[()]]:
        def inner(s: Value) -> Value:
            return s + li.convert(li.in_range(i + 1, 0, 2), "f32")

        s, _ = li.scan(lambda s, _: (inner(s), ()), li.zeros((2,)), length=3, count=n)
        return h + s * row, ()

    h, _ = li.scan(outer, li.zeros((2,)), x)
    return li.Graph("nested", [x, i, n], {"h": h})


@pytest.fixture(scope="module")
def exe() -> Iterator[Executable]:
    entries = {"count": _picked(4, True), "T": _picked("T", False), "both": _picked("T", True), "nested": _nested()}
    entries["gradient"] = li.grad(entries["count"], "loss", ["table"])
    with li.compile(li.Program("all", entries)) as made:
        yield made


@pytest.mark.parametrize("entry", ["count", "T", "both", "nested", "gradient"])
def test_values_are_demanded_by_steps(exe: Executable, entry: str) -> None:
    wrong, right = np.array([7, -9], np.int32), np.array([1, -1], np.int32)

    def run(i: Array, steps: int) -> Array:
        given = {"x": X[:steps], "i": i} if entry == "T" else {"x": X, "i": i, "n": np.int32(steps)}
        got: Array = exe.entries[entry](given)["d_table" if entry == "gradient" else "h"]
        return got

    want = {"nested": 4 * 2 * np.array([2.0, 0.0]), "gradient": 2 * np.array([[1.0, 1], [0, 0], [1, 1]])}.get(
        entry, 2 * (TABLE[2] + TABLE[0])
    )
    np.testing.assert_array_equal(run(wrong, 0), np.zeros_like(want))
    np.testing.assert_allclose(run(right, 2), want)
    with pytest.raises(li.ValueRangeError, match=r"value outside 0\.\.2"):
        run(wrong, 2)


def test_no_step_of_a_range_that_a_call_leaves_empty() -> None:
    """Nothing lies in 0 .. S - 1 where S is 0: such a range stays with the steps."""
    x, i, table = li.input("x", ("S", 2)), li.input("i", (2,), "i32"), li.weight("table", TABLE)

    def cell(h: Value, row: Value) -> tuple[Value, tuple[()]]:
        return h + row * li.convert(li.in_range(i + 1, 0, x.shape[0] - 1), "f32"), ()

    h, _ = li.scan(cell, li.zeros((2,)) + li.sum(table, 0), x)
    with li.compile(li.Graph("empty", [x, i], {"h": h})) as exe:
        i_wrong = np.array([7, 8], np.int32)
        np.testing.assert_array_equal(exe(x=X[:0], i=i_wrong)["h"], [9, 12])
        np.testing.assert_array_equal(exe(x=X[:3], i=np.array([0, 1], np.int32))["h"], [12, 18])

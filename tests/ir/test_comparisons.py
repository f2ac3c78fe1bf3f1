"""`==` and `!=` of values: elements compared as NumPy does; lists, sets and dicts of values go by identity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_ir as li

A, B, F = li.input("a", (2, 3), "i32"), li.input("b", (3,), "i32"), li.input("f", (2, 3))
ARRAY = np.array([2, 0, 1], "i4")
Case = Callable[[Any, Any, Any], Any]
CASES: dict[str, Case] = {
    "a number": lambda a, b, f: a == 1,
    "a number on the left": lambda a, b, f: 1 != a,
    "a float": lambda a, b, f: f != 0.5,
    "an array": lambda a, b, f: a == ARRAY,
    "an array on the left": lambda a, b, f: ARRAY != a,
    "a list": lambda a, b, f: a == [2, 0, 1],
    "another value": lambda a, b, f: a == b,
    "unequal to another": lambda a, b, f: a != b,
    "itself": lambda a, b, f: f != f,
    "combined": lambda a, b, f: (a == b) | (f == 0.5),
}


def numbers(seed: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    f = rng.choice(np.array([0.5, -1.5, np.nan], "f4"), (2, 3))
    return rng.integers(0, 3, (2, 3), "i4"), rng.integers(0, 3, 3, "i4"), f


def run(y: Any, a: Any, b: Any, f: Any) -> Any:
    return li.interpret(li.Graph("g", [A, B, F], {"y": y}), a=a, b=b, f=f)["y"]


@pytest.mark.parametrize("name", CASES)
def test_elements_are_compared_as_in_numpy(name: str, seed: int) -> None:
    case, given = CASES[name], numbers(seed)
    want = case(*given)
    got = run(case(A, B, F), *given)
    assert got.dtype == bool
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", CASES)
def test_comparisons_are_operands(name: str, seed: int) -> None:
    case, given = CASES[name], numbers(seed)
    want = case(*given)
    y = case(A, B, F)
    np.testing.assert_array_equal(run(li.where(y, 1.0, 0.0), *given), np.where(want, 1.0, 0.0))
    np.testing.assert_array_equal(run(li.sum(li.convert(y, "i32"), 1), *given), want.sum(1))
    chosen = li.op("select", pred=y, on_true=F, on_false=F * 2.0).result
    np.testing.assert_array_equal(run(chosen, *given), np.where(want, given[2], given[2] * 2))
    np.testing.assert_array_equal(run(~y, *given), ~want)


def test_comparisons_go_through_loops(seed: int) -> None:
    """As scanned rows, as what a cell reads from outside, as its carry and its row of results."""
    given = numbers(seed)
    _, b, f = given
    outside = B == B[0]

    def cell(last: Any, x: Any) -> Any:
        row, same = x
        return row, (row == last, same == outside)

    last, (rows, both) = li.scan(cell, F[0] == F[1], (F != 0.5, li.equal(A, B) != (F == 0.5)))
    got = li.interpret(li.Graph("g", [A, B, F], {"last": last, "rows": rows, "both": both}), a=given[0], b=b, f=f)
    x = f != 0.5
    np.testing.assert_array_equal(got["last"], x[1])
    np.testing.assert_array_equal(got["rows"], [x[0] == (f[0] == f[1]), x[1] == x[0]])
    np.testing.assert_array_equal(got["both"], ((given[0] == b) != (f == 0.5)) == (b == b[0]))


def test_values_in_containers_go_by_identity() -> None:
    again = li.input("a", (2, 3), "i32")
    assert A in [B, A]
    assert again not in [B, A, F]
    assert [F, B, A].index(A) == 2
    assert (A, B) == (A, B)
    assert (A, B) != (A, again)
    assert {A: 1, again: 2} == {again: 2, A: 1}
    assert len({A, again, A}) == 2
    assert bool(A == A)
    assert not bool(A == again)


def test_what_is_no_number_is_unequal() -> None:
    given: list[Any] = [None, "a", object()]
    for other in given:
        assert (A == other) is False
        assert (A != other) is True


def test_a_comparison_with_numbers_has_no_truth() -> None:
    with pytest.raises(TypeError, match="no truth value"):
        bool(A == 3)


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(li.IRError, match="sizes 2 and 3 do not broadcast"):
        li.where(li.input("c", (2,)) == li.input("d", (3,)), 1.0, 0.0)

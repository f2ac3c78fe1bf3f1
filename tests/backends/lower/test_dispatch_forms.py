"""Pairs of ops of which IREE makes one dispatch that it cannot compile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exact_cases import Case, agree

import lstm_ir as li

Array = np.ndarray[Any, Any]
A = np.arange(63, dtype=np.float32).reshape(7, 9)


def _case(name: str, x: li.Value, y: li.Value, a: Array, want: Array) -> Case:
    return li.Graph(name, [x], {"y": y}), {"x": a}, {"y": want}, name


def test_every_second_element_backwards() -> None:
    x, row, named = li.input("x", (7, 9)), li.input("x", (7,)), li.input("x", ("R", "C"))
    agree(
        [
            _case("row", row, li.reverse(row[::2]), A[:, 0], A[::-2, 0]),
            _case("columns", x, li.reverse(x[1::2, ::3], 1), A, A[1::2, ::3][:, ::-1]),
            _case("both", x, li.reverse(li.abs(x[::2, ::2])), A, A[::2, ::2][::-1, ::-1]),
            _case("names", named, li.reverse(named[::2, ::2]), A, A[::2, ::2][::-1, ::-1]),
        ]
    )


def test_a_row_of_a_slice() -> None:
    x = li.input("x", ("A", "B", "C"))
    a = A.reshape(7, 3, 3)
    agree([_case("row", x, li.take(x[:, :, 1:], 0, 2), a, a[:, :, 1])])


def test_picked_rows_are_added_again() -> None:
    """Eight bytes wide, their updates were an array of 2^58 bytes on the stack."""
    cases: list[Case] = []
    for kind in ("f64", "i64", "f32"):
        t, i = li.input("t", ("A", "B"), kind), li.input("i", ("N",), "i32")
        y = li.scatter_add(t, i, li.take(t, i) * li.constant(2, kind))
        table, rows = A.astype(li.DType(kind).numpy), np.array([0, 2, 2, 4], np.int32)
        want = table * np.array([3, 1, 5, 1, 3, 1, 1], table.dtype)[:, None]
        cases.append((li.Graph(kind, [t, i], {"y": y}), {"t": table, "i": rows}, {"y": want}, kind))
    agree(cases)


@pytest.mark.parametrize("kind", ["i32", "i64", "i8", "u8", "u32"])
def test_an_integer_less_itself(kind: str, rng: np.random.Generator) -> None:
    """Of open sizes; IREE makes a literal of it, which needs numbers."""
    x, y = li.input("x", ("N", "M"), kind), li.input("y", ("M",), kind)
    g = li.Graph("less", [x, y], {"zero": x - x, "less": x - y})
    a, b = (rng.integers(0, 100, s).astype(li.DType(kind).numpy) for s in ((3, 5), (5,)))
    with li.compile(g, options={"cache": False}) as exe:
        got = exe(x=a, y=b)
    np.testing.assert_array_equal(got["zero"], np.zeros_like(a))
    np.testing.assert_array_equal(got["less"], a - b)

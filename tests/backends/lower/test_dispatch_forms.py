"""Pairs of ops of which IREE makes one dispatch that it cannot compile."""

from __future__ import annotations

from typing import Any

import numpy as np
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


def test_softmax_of_one_row() -> None:
    """Over an open size beside axes of size 1, 2^55 bytes of stack were asked for."""
    x, deep = li.input("x", (1, "T")), li.input("x", (1, 1, "T"))
    a = A[:1]
    want = np.exp(a - a.max()) / np.exp(a - a.max()).sum()
    rows = li.input("x", (1, "T", "Q"))
    greatest = A.reshape(1, 7, 9).max(2)
    of_rows = np.exp(greatest - greatest.max()) / np.exp(greatest - greatest.max()).sum()
    cases = [
        _case("row", x, li.softmax(x, 1), a, want),
        _case("deep", deep, li.softmax(deep, 2), a[None], want[None]),
        _case("greatest", rows, li.softmax(li.max(rows, 2), 1), A.reshape(1, 7, 9), of_rows),
    ]
    for graph, given, wanted, name in cases:
        with li.compile(graph) as exe:
            np.testing.assert_allclose(exe(**given)["y"], wanted["y"], atol=1e-6, err_msg=name)

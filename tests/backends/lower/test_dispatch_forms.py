"""Ops, and pairs of ops, of which IREE makes one dispatch that it cannot compile, or that is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import need
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


def test_a_scatter_of_no_rows() -> None:
    """The compiler divides by their number, and ends."""
    cases: list[Case] = []
    for kind, (rows, columns) in (("f32", (7, 9)), ("f16", (5, 3)), ("i32", (2, 4))):
        t = li.input("t", (rows, columns), kind)
        table = np.arange(rows * columns).reshape(rows, columns).astype(li.DType(kind).numpy)
        none = np.zeros((0,), np.int32)
        y = li.scatter_add(t, none, li.constant(np.zeros((0, columns)), kind))
        cases.append((li.Graph(kind, [t], {"y": y}), {"t": table}, {"y": table}, kind))
        y = li.scatter_add(t, none, li.constant(np.zeros((rows, 0)), kind), axis=1)
        cases.append((li.Graph(f"{kind}_columns", [t], {"y": y}), {"t": table}, {"y": table}, kind))
    agree(cases)


@pytest.mark.vulkan
def test_parts_of_open_sizes_on_vulkan() -> None:
    """One dispatch that picks the buffer of a part element by element reads all from the first, or is refused."""
    need("vulkan")
    a, b, c = A[0, :4], A[1, :7], A[2, :2]
    x, y, z = li.input("x", ("T",)), li.input("y", (7,)), li.input("z", (2,))
    total = li.sum(li.concat([x, li.abs(y), li.convert(li.convert(z, "bf16"), "f32")]))
    summed = np.float32(a.sum() + b.sum() + c.sum())  # whole numbers below 256: exact in bf16 and f32
    p, q = li.input("p", ("B", 2), "f16"), li.input("q", ("B", "T"), "f16")
    m, n = A[:3, :2].astype(np.float16), A[:3, 2:7].astype(np.float16)
    joined = np.concatenate([m, n], 1)
    graphs = [
        (li.Graph("rows", [x, y, z], {"v": total}), {"x": a, "y": b, "z": c}, {"v": np.asarray(summed)}, "sum"),
        (li.Graph("columns", [p, q], {"v": li.concat([p, q], 1)}), {"p": m, "q": n}, {"v": joined}, "halves"),
    ]
    agree(graphs, "vulkan")

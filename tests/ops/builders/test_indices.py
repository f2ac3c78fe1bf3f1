"""Indices along an axis and tuples of them: axes that do not fit are refused, of no elements none is picked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_ir as li

X, CUBE, OPEN = li.input("x", (2, 3)), li.input("c", (2, 3, 4)), li.input("o", ("T", 3))
AT = np.zeros((2, 1), "i4")
REFUSED: dict[str, Callable[[], Any]] = {
    "gather_elements: indices have size 5 on axis 1, x has 3": lambda: li.gather_elements(X, np.zeros((1, 5), "i4"), 0),
    "gather_elements: indices have size 3 on axis 0, x has 2": lambda: li.gather_elements(X, np.zeros((3, 1), "i4")),
    "put_along_axis: indices have size 5 on axis 1, x has 3": (
        lambda: li.put_along_axis(X, np.zeros((1, 5), "i4"), 9.0, 0)
    ),
    "gather_nd: indices have size 5 on axis 1 of the batch, x has 3": (
        lambda: li.gather_nd(CUBE, np.zeros((2, 5, 1), "i4"), 2)
    ),
    "gather_nd: indices have size 2 on axis 0 of the batch, x has T; name them alike": (
        lambda: li.gather_nd(OPEN, np.zeros((2, 1), "i4"), 1)
    ),
    "scatter_nd: updates have size 3 on axis 0, expected 2": (
        lambda: li.scatter_nd(li.input("x", (4, 3)), [[0], [1]], np.zeros((3, 2), "f4"))
    ),
    "scatter_nd: updates have 1 axes, expected [2,3]": (
        lambda: li.scatter_nd(li.input("x", (4, 3)), [[0], [1]], np.zeros(6, "f4"))
    ),
    "take_along_axis: the axis that indices name has no elements": (
        lambda: li.take_along_axis(li.zeros((0,)), li.input("i", ("N",), "i32"))
    ),
    "put_along_axis: the axis that indices name has no elements": (
        lambda: li.put_along_axis(li.zeros((2, 0)), AT, 1.0)
    ),
}  # fmt: skip


@pytest.mark.parametrize("problem", REFUSED)
def test_axes_that_do_not_fit(problem: str) -> None:
    with pytest.raises(li.IRError, match=re.escape(problem)):
        REFUSED[problem]()


def test_named_sizes_are_left_to_the_call() -> None:
    """As PyTorch's gather and scatter: fewer indices than x has, never more."""
    x, i = li.input("x", ("T", 3)), li.input("i", ("N", 2), "i32")
    outputs = {"got": li.gather_elements(x, i, 1), "put": li.put_along_axis(x, i, 9.0, 1)}
    g = li.Graph("g", [x, i], outputs)
    a, at = np.arange(12, dtype="f4").reshape(4, 3), np.array([[2, 0], [1, -1]], "i4")
    put = a.copy()
    for row, places in enumerate(at):
        put[row, places] = 9
    with li.compile(g) as exe:
        for run in (lambda given: li.interpret(g, given), exe):
            out = run({"x": a, "i": at})
            np.testing.assert_array_equal(out["got"], np.take_along_axis(a[:2], at, 1))
            np.testing.assert_array_equal(out["put"], put)
            with pytest.raises(li.CallError, match=re.escape("[0, N) on axis 0 is outside [0, T)")):
                run({"x": a[:1], "i": at})


def test_fewer_indices_leave_the_rest() -> None:
    x = li.input("x", (3, 4))
    at = np.array([[0], [3]])
    g = li.Graph("g", [x], {"y": li.put_along_axis(x, at, 9.0, 1)})
    a = np.arange(12, dtype="f4").reshape(3, 4)
    want = a.copy()
    np.put_along_axis(want[:2], at, 9, 1)
    np.testing.assert_array_equal(li.interpret(g, x=a)["y"], want)
    one = li.Graph("g", [x], {"y": li.put_along_axis(x, [[1]], 9.0, 1)})
    want = a.copy()
    want[0, 1] = 9  # as PyTorch's scatter and ONNX's ScatterElements
    np.testing.assert_array_equal(li.interpret(one, x=a)["y"], want)


@pytest.mark.parametrize("rows", [3, "B"])
def test_one_place_of_each_row(rows: int | str, kernels: bool) -> None:
    """The element is what is put there, signs of zeros too; a loop of such steps is a kernel."""
    x, i, u = li.input("x", (rows, 4)), li.input("i", (2, rows, 1), "i32"), li.input("u", (2, rows, 1))

    def cell(h: li.Value, row: tuple[li.Value, li.Value]) -> tuple[li.Value, tuple[()]]:
        return li.put_along_axis(h * 2.0, *row, 1), ()

    h, _ = li.scan(cell, x, (i, u))
    graph = li.Graph("rows", [x, i, u], {"y": li.put_along_axis(x, i[0], u[0], 1), "h": h})
    a, at = np.arange(12, dtype="f4").reshape(3, 4), np.array([[[2], [-1], [0]], [[1], [3], [0]]], "i4")
    new = np.array([[[-0.0], [np.inf], [7]], [[5], [np.nan], [-0.0]]], "f4")
    one, twice = a.copy(), a.copy()
    np.put_along_axis(one, at[0], new[0], 1)
    for places, values in zip(at, new, strict=True):
        twice *= 2
        np.put_along_axis(twice, places, values, 1)
    with li.compile(graph) as exe:
        assert not kernels or ": kernel, no products" in str(exe.report)
        for got in (li.interpret(graph, x=a, i=at, u=new), exe(x=a, i=at, u=new)):
            for name, want in (("y", one), ("h", twice)):
                np.testing.assert_array_equal(got[name], want)
                np.testing.assert_array_equal(np.signbit(got[name]), np.signbit(want))
        with pytest.raises(li.ValueRangeError, match=r"outside 0\.\.3"):
            exe(x=a, i=at * 4, u=new)


def test_axes_without_elements() -> None:
    x, none = li.input("x", (2, 0)), np.zeros((2, 0), "i4")
    outputs = {
        "sort": li.sort(x), "argsort": li.argsort(x), "take": li.take_along_axis(x, none),
        "gather": li.gather_elements(x, none), "put": li.put_along_axis(x, none, 1.0), "top": li.top_k(x, 0)[0],
        "places": li.top_k(x, 0)[1], "nd": li.gather_nd(li.swapaxes(x, 0, 1), np.zeros((0, 1), "i4")),
    }  # fmt: skip
    g = li.Graph("g", [x], outputs)
    empty = np.zeros((2, 0), "f4")
    with li.compile(g) as exe:
        for out in (li.interpret(g, x=empty), exe(x=empty)):
            assert {n: a.shape for n, a in out.items()} == dict.fromkeys(outputs, (2, 0)) | {"nd": (0, 2)}
            assert out["places"].dtype == out["argsort"].dtype == np.int32

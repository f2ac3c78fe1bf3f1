"""A number repeated to a matrix with a named size stands where a weight does: no pass takes its size for a number."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_ir as li


@pytest.mark.parametrize("precision", ["bf16", "f16", "int8", "int8-dynamic"])
def test_a_product_over_a_named_size(precision: str, rng: np.random.Generator) -> None:
    x = li.input("x", ("B", "K"))
    a = rng.standard_normal((3, 5)).astype("f4")
    graph = li.Graph("total", [x], {"y": x @ li.ones(("K", 4))})
    with li.compile(graph, options={"precision": precision}) as exe:
        got = exe(x=a)["y"]
    np.testing.assert_allclose(got, np.repeat(a.sum(1, keepdims=True), 4, 1), rtol=1e-5, atol=1e-6)


def test_a_table_with_a_named_number_of_rows(rng: np.random.Generator) -> None:
    x, ids = li.input("x", ("V",)), li.input("ids", ("N",), "i32")
    w = rng.standard_normal((8, 6)).astype("f4")
    y = li.take(li.ones(("V", 8)), ids) @ li.weight("w", w)
    graph = li.Graph("rows", [x, ids], {"y": y, "sum": li.sum(x)})
    with li.compile(graph) as exe:
        got = exe(x=np.ones(5, "f4"), ids=np.array([0, 4], "i4"))["y"]
    np.testing.assert_allclose(got, np.repeat(w.sum(0, keepdims=True), 2, 0), rtol=1e-5)

"""Sizes and counts that 32 bits do not hold: right, or refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ir import dims
from lstm_ir.ir.types import shape_of
from lstm_ir.ops.primitive.size import size_value

Array = np.ndarray[Any, Any]
Value = li.Value
BEYOND = 2**32  # what is added to a count, and is lost where its lower half is taken
Q = np.random.default_rng(0).standard_normal((2, 4, 3)).astype(np.float32)
N = np.array([2, 1], np.int64)


def _in_a_loop(kind: str) -> li.Graph:
    """The counts of inner loops are the outer loop's rows, and beyond their range: they are moved into it."""
    q, n = li.input("q", Q.shape), li.input("n", (2,), "i64")

    def outer(h: Value, rows: tuple[Value, Value]) -> tuple[Value, tuple[()]]:
        row, m = rows
        if kind == "reverse":  # of the last two of four rows, by the number of rows
            lengths = li.constant(np.full(3, 2, np.int32))
            s, _ = li.scan(
                lambda s, v: (li.tanh(0.5 * s + v), ()), li.zeros((3,)), row, count=m + BEYOND, lengths=lengths,
                reverse=True,
            )  # fmt: skip
        else:
            s, _ = li.scan(
                lambda s, v, step: (s + li.sin(v * li.convert(step, "f32")), ()), li.zeros((3,)), row,
                count=m + BEYOND, with_step=True,
            )  # fmt: skip
        return h + s, ()

    h, _ = li.scan(outer, li.zeros((3,)), (q, n))
    graph = li.Graph(kind, [q, n], {"h": h, "loss": li.sum(h)})
    return li.grad(graph, "loss", ["q"]) if kind == "gradient" else graph


def test_rows_of_a_reversed_loop() -> None:
    wide = Q.astype(np.float64)
    want = np.tanh(0.5 * np.tanh(wide[:, 1]) + wide[:, 0]).sum(0)
    with li.compile(_in_a_loop("reverse")) as exe:
        np.testing.assert_allclose(exe(q=Q, n=N)["h"], want, atol=1e-5)


def test_steps_of_a_gradient() -> None:
    step = np.arange(4.0)[:, None]
    with li.compile(_in_a_loop("gradient")) as exe:
        np.testing.assert_allclose(exe(q=Q, n=N)["d_q"], step * np.cos(Q * step), atol=1e-5)


def test_products_of_sizes_as_64_bits() -> None:
    t, b = li.input("t", ("T", 0)), li.input("b", ("B", 0))
    (size,) = shape_of(("2*T*B",))
    graph = li.Graph("product", [t, b], {"size": size_value(size, li.DType.i64)})
    given = {"t": np.zeros((65536, 0), np.float32), "b": np.zeros((65537, 0), np.float32)}
    with li.compile(graph) as exe:
        assert exe(given)["size"] == li.interpret(graph, given)["size"] == 2 * 65536 * 65537


@pytest.mark.parametrize(
    ("size", "rows", "words"),
    [
        ("T", 2**31, r"x \(axis 0\): T is 2147483648; sizes that have names go up to 2147483647"),
        ("2*T", 2**30, r"dim: 2\*T is more than an i32 holds, 2147483647.*T = 1073741824"),
    ],
)
def test_what_32_bits_do_not_hold_is_refused(size: str, rows: int, words: str) -> None:
    x = li.input("x", ("T", 0))
    graph = li.Graph("size", [x], {"size": li.size(size)})
    largest, beyond = (np.zeros((r, 0), np.float32) for r in (rows - 1, rows))
    with li.compile(graph) as exe:
        assert exe(x=largest)["size"] == (rows - 1) * (2**31 // rows)
        for call in (exe, lambda x: li.interpret(graph, x=x)):
            with pytest.raises(li.CallError, match=words):
                call(x=beyond)


def test_a_number_that_32_bits_do_not_hold_is_refused() -> None:
    with pytest.raises(li.IRError, match="2147483648 is more than an i32 holds"):
        li.size(2**31)


def test_a_product_of_three_names_in_64_bits() -> None:
    """Its largest value is beyond 64 bits; a call's is not."""
    x = li.input("x", ("N", "M", "K"))
    graph = li.Graph("count", [x], {"n": size_value(dims.product(x.shape), li.DType.i64)})
    assert li.interpret(graph, x=np.zeros((2, 3, 5), "f4"))["n"] == 30
    with li.compile(graph) as exe:
        assert exe(x=np.zeros((2, 3, 5), "f4"))["n"] == 30

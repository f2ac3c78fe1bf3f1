"""`dynamic_quantize_matmul`: its gradient, and the pass that keeps its rows floats."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.passes.pipeline import Pipeline


def drawn(columns: int, zero: bool, rng: np.random.Generator) -> tuple[li.Graph, dict[str, np.ndarray]]:
    q = rng.integers(0, 256, (5, 7)).astype("u1")
    middle = rng.integers(100, 150, columns).astype("u1") if zero else None
    scale = rng.uniform(0.01, 0.02, columns).astype("f4")
    x, s = li.input("x", ("T", 3, 5)), li.input("s", (columns,))
    y = li.dynamic_quantize_matmul(x, li.constant(q), s, middle)
    graph = li.Graph("g", [x, s], {"y": y, "loss": li.sum(y * y)})
    wide = q.astype("f8") - (0 if middle is None else middle)
    return graph, {"x": rng.standard_normal((4, 3, 5)).astype("f4"), "s": scale, "wide": wide}


@pytest.mark.parametrize("columns", [1, 7])
@pytest.mark.parametrize("zero", [False, True])
def test_the_gradient_passes_the_rounding(columns: int, zero: bool, rng: np.random.Generator) -> None:
    """That of x ((w - zero) s), at the y that the integers gave."""
    graph, arrays = drawn(columns, zero, rng)
    x, s, wide = (arrays[n].astype("f8") for n in ("x", "s", "wide"))
    given = {n: arrays[n] for n in ("x", "s")}
    ct = 2 * li.interpret(graph, given)["y"].astype("f8")
    got = li.interpret(li.grad(graph, "loss", ["x", "s"]), given)
    of_columns = np.einsum("tbn,tbn->n", ct, x @ wide)
    np.testing.assert_allclose(got["d_x"], ct @ (wide * s).T, rtol=1e-4)
    np.testing.assert_allclose(got["d_s"], of_columns if columns == 7 else of_columns.sum(keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("looped", [False, True])
def test_rows_stay_floats(looped: bool, rng: np.random.Generator) -> None:
    q, scale = rng.integers(-127, 128, (5, 5)).astype("i1"), np.array([0.01], "f4")

    def one(h: li.Value, x: li.Value) -> tuple[li.Value, li.Value]:
        h = li.tanh(x + li.dynamic_quantize_matmul(h, q, scale))
        return h, h

    x = li.input("x", ("T", 3, 5))
    y = li.scan(one, li.zeros((3, 5)), x)[1] if looped else li.dynamic_quantize_matmul(x, q, scale)
    assert isinstance(y, li.Value)
    made = Pipeline.parse("widen-rows").run(li.Graph("g", [x], {"y": y})).graph
    a = rng.standard_normal((4, 3, 5)).astype("f4")
    want, h = a.astype("f8") @ (q * 0.01), np.zeros((3, 5))
    for t, row in enumerate(a if looped else ()):
        want[t] = h = np.tanh(row + h @ (q * 0.01))
    np.testing.assert_allclose(li.interpret(made, x=a)["y"], want, atol=2e-5)
    assert "dynamic_quantize_matmul" not in str(made)

"""A product that a step compares with itself is made once, whichever of its elements are read where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_ir as li

N, H, LENGTH = 7, 5, 12


def ranks(z: Any) -> Any:
    """How many elements are larger: a permutation, unless an element is larger than itself."""
    return li.sum(li.convert(z[:, None, :] > z[:, :, None], "f32"), 2)


def places(z: Any) -> Any:
    """Of each element, whether it is the largest."""
    return li.convert(li.equal(z[:, :, None], li.max(z, 1, keepdims=True)[:, :, None]), "f32")[:, :, 0]


def picked(z: Any) -> Any:
    """Elements of one value by themselves, beside their row."""
    return li.convert(z[:, 2:3] >= z, "f32") + li.convert(z[:, 5:6] > z, "f32")


PRODUCTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "matrix": lambda h, w, m: h @ w,
    "memory": lambda h, w, m: li.einsum("bh,bnh->bn", h, m),
    "sum": lambda h, w, m: li.sum(li.tanh(h[:, None] + m), 2),
}


def graph(decide: Callable[[Any], Any], until: bool, function: Callable[[Any], Any], product: str) -> li.Graph:
    """h reads what the step before decided, so that all of it stays in the loop."""
    rng = np.random.default_rng(5)
    wh, wo, wd = (rng.standard_normal(s).astype("f4") for s in ((H, H), (N, H), (N, H)))
    h0, memory = li.input("h0", ("B", H)), li.input("memory", ("B", N, H))

    def step(h: Any, _: Any, m: Any) -> Any:
        z = function(PRODUCTS[product](h, li.constant(wo.T), m))
        d = decide(z)
        h = li.tanh(0.5 * h @ li.constant(wh) + 0.1 * d @ li.constant(wd))
        return h, (z, d)

    kwargs: dict[str, Any] = {"until": lambda h, y: li.sum(h, 1) > 2.5} if until else {}
    out = li.scan(step, h0, None, (memory,), length=LENGTH, **kwargs)
    z, d = out[1]
    return li.Graph("g", [h0, memory], {"z": z, "d": d})


@pytest.mark.parametrize("function", [lambda z: z, li.tanh, lambda z: 0.3 * z + 0.1], ids=["product", "tanh", "affine"])
@pytest.mark.parametrize("until", [False, True], ids=["all_steps", "until"])
@pytest.mark.parametrize("decide", [ranks, places, picked])
@pytest.mark.parametrize("product", PRODUCTS)
def test_decisions(
    decide: Callable[[Any], Any], until: bool, function: Callable[[Any], Any], product: str, seed: int
) -> None:
    g, rng = graph(decide, until, function, product), np.random.default_rng(seed)
    with li.compile(g) as exe:
        assert [": kernel, " in n for n in exe.report.notes if n.startswith("scan at")] == [True]
        for rows in (1, 3, 17):
            shapes = {"h0": (rows, H), "memory": (rows, N, H)}
            got = exe({n: rng.standard_normal(v).astype("f4") for n, v in shapes.items()})
            z, d = got["z"], got["d"]
            ran = np.abs(z).sum(2) > 0  # rows behind their end are zero
            assert ran[0].all()
            for step in range(LENGTH):  # each decision is that of the values beside it
                want = li.interpret(decision(decide, rows), z=z[step])["d"]
                np.testing.assert_array_equal(d[step][ran[step]], want[ran[step]])


def decision(decide: Callable[[Any], Any], rows: int) -> li.Graph:
    z = li.input("z", (rows, N))
    return li.Graph("d", [z], {"d": decide(z)})


EXTREMES: dict[str, tuple[Callable[..., Any], Any]] = {
    "columns": (li.max, 2), "heads": (li.max, 1), "both": (li.max, (1, 2)), "least": (li.min, 2),
}  # fmt: skip


@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize(("heads", "S", "softmax"), [(2, 17, True), (1, "S", False), (3, 5, False)])
def test_gradients_of_extremes(heads: int, S: int | str, softmax: bool, extreme: str, seed: int) -> None:
    """The elements that are the largest are those of the same products, whatever else reads a row of them."""
    h, memory = li.input("h", ("B", heads, 4)), li.input("memory", ("B", S, 4))
    of, axes = EXTREMES[extreme]

    def cell(h: Any, _: Any) -> Any:
        p = h @ li.swapaxes(memory, 1, 2)
        p = li.softmax(p, 2) if softmax else p
        return li.tanh(0.1 * p @ memory + 0.5 * h), of(p, axes)

    _, y = li.scan(cell, h, None, length=3)
    graph = li.grad(li.Graph("g", [h, memory], {"loss": li.sum(y)}), "loss", ["h", "memory"])
    rng, columns = np.random.default_rng(seed), S if isinstance(S, int) else 11
    with li.compile(graph) as exe:
        for rows in (1, 3):
            given = {n: rng.standard_normal((rows, k, 4), np.float32) for n, k in (("h", heads), ("memory", columns))}
            got, want = exe(given), li.interpret(graph, given)
            for n, w in want.items():
                np.testing.assert_allclose(
                    got[n], w, rtol=0, atol=3e-5 * (1 + np.max(np.abs(w))), err_msg=f"{n} {seed}"
                )


@pytest.mark.parametrize("extreme", ["max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("n", "m"), [(2, 3), (8, 2), (2, 16), (1, 3)])
def test_extremes_of_a_product_over_a_leading_axis(extreme: str, dtype: str, n: int, m: int, seed: int) -> None:
    """Its elements are made term by term where columns are its own, in registers where they are the other axis."""
    rng, shape = np.random.default_rng(seed), ("T", "B", n, m)
    x, h0 = li.input("x", shape, dtype), li.input("h", shape[1:], dtype)
    w = li.weight("w", (rng.standard_normal((n, n)) * 0.3).astype(x.dtype.numpy))

    def cell(h: Any, x: Any, w: Any) -> Any:
        h = li.tanh(x + li.einsum("bnm,nk->bkm", h, w))
        return h, (getattr(li, extreme)(h, 2), h)

    _, (most, _) = li.scan(cell, h0, x, (w,))
    g = li.grad(li.Graph("g", [x, h0], {"loss": li.sum(most * most)}), "loss", ["x", "h"])
    with li.compile(g) as exe:
        for T, B in ((1, 1), (1, 3), (4, 17)):
            sizes = {"x": (T, B, n, m), "h": (B, n, m)}
            arrays = {k: rng.standard_normal(v).astype(x.dtype.numpy) for k, v in sizes.items()}
            want, got = li.interpret(g, arrays), exe(arrays)
            for name, v in want.items():
                np.testing.assert_allclose(got[name], v, rtol=1e-4, atol=1e-5, err_msg=f"{name} {T} {B}")


def test_a_product_of_one_column_that_is_compared(seed: int) -> None:
    """A matrix of one number for each row of the batch, which a softmax reads."""
    rng = np.random.default_rng(seed)
    x, h0, p0 = li.input("x", ("T", "B", 1)), li.input("h", ("B", 1)), li.input("p", ("B", 1, 1))

    def cell(c: Any, x: Any) -> Any:
        h, p = c
        p = li.einsum("bij,bjk->bik", p, p) * 0.3
        h = li.einsum("bij,bj->bi", p, h) + x
        return (h, p), (li.softmax(h, 1), li.argmax(h, 1))

    (h, p), (y, k) = li.scan(cell, (h0, p0), x)
    g = li.Graph("g", [x, h0, p0], {"h": h, "p": p, "y": y, "k": k})
    with li.compile(g) as exe:
        assert all(": kernel, " in n for n in exe.report.notes if n.startswith("scan at"))
        for T, B in ((1, 1), (3, 5), (2, 20)):
            arrays = {k: rng.standard_normal(v).astype("f4") for k, v in
                      {"x": (T, B, 1), "h": (B, 1), "p": (B, 1, 1)}.items()}  # fmt: skip
            want, got = li.interpret(g, arrays), exe(arrays)
            for name, v in want.items():
                np.testing.assert_allclose(got[name], v, rtol=1e-5, atol=1e-6, err_msg=name)

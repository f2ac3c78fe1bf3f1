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

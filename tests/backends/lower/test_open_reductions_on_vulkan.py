"""Sums over other axes than the last ones of open tensors on Vulkan, spread over what was summed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

SIZES = {"T": 9, "B": 3, "C": 5}
SHAPES: list[tuple[tuple[Any, ...], int]] = [
    ((1, "T", 32), 1),
    (("B", "T", 8), 0),
    (("B", "T", "C"), 0),
    ((3, "T", 5), 0),
]
REDUCE: dict[str, tuple[Any, Any]] = {"sum": (li.sum, np.sum), "max": (li.max, np.max), "min": (li.min, np.min)}


@pytest.mark.vulkan
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_a_reduction_times_its_operand(shape: tuple[Any, ...], axis: int, rng: np.random.Generator) -> None:
    """x * sum(x), where the dispatch of both read other rows."""
    need("vulkan")
    x = li.input("x", shape)
    found = {name: x * li.broadcast_to(f(x, axis, keepdims=True), x.shape) for name, (f, _) in REDUCE.items()}
    a = rng.standard_normal([SIZES.get(d, d) for d in shape]).astype(np.float32)
    with li.compile(li.Graph("spread", [x], found), "vulkan") as exe:
        got = exe(x=a)
    for name, (_, f) in REDUCE.items():
        want = a.astype("f8") * f(a.astype("f8"), axis=axis, keepdims=True)
        np.testing.assert_allclose(got[name], want, atol=1e-5, err_msg=name)


@pytest.mark.vulkan
def test_a_product_over_an_open_size_times_its_operand(rng: np.random.Generator) -> None:
    """x * (s x), as attention over rows weighs them."""
    need("vulkan")
    x, s = li.input("x", (1, "T", 32)), li.input("s", (1, 1, "T"))
    row = li.dot_general(s, x, ((2,), (1,)), ((0,), (0,)))
    g = li.Graph("weighed", [x, s], {"y": x * li.broadcast_to(row, x.shape)})
    with li.compile(g, "vulkan") as exe:
        for T in (9, 1, 5):
            a, w = rng.standard_normal((1, T, 32)).astype("f4"), rng.standard_normal((1, 1, T)).astype("f4")
            want = a.astype("f8") * np.einsum("bit,btc->bic", w.astype("f8"), a.astype("f8"))
            np.testing.assert_allclose(exe(x=a, s=w)["y"], want, atol=1e-5)

"""Sums and products that are spread over other rows on Vulkan: threads of one dispatch wait for nobody."""

from __future__ import annotations

from collections.abc import Callable
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


def _inputs(named: bool) -> dict[str, li.Value]:
    shapes: dict[str, tuple[Any, ...]] = {"a": (4, 16), "b": (16, 8), "c": (5, 4, 16), "d": (4, 16, 8),
                                           "e": (3, 4, 8), "f": (3, 8, 4), "g": (5, 3, 4, 8), "h": (4, 3, 16),
                                           "i": (4, 16, 5)}  # fmt: skip
    names = {4: "M", 8: "N", 5: "B"} if named else {}
    return {n: li.input(n, tuple(names.get(d, d) for d in s)) for n, s in shapes.items()}


Spread = tuple[Callable[..., li.Value], Callable[..., Any]]
# Each twice: as a graph, and by NumPy. A row in front of rows, between them, behind; of products, sums and both.
SPREADS: dict[str, Spread] = {
    "product": (lambda a, b, e, **_: (a @ b)[None] * e, lambda a, b, e, **_: (a @ b)[None] * e),
    "turned": (lambda a, b, f, **_: (a @ b).T[None] * f, lambda a, b, f, **_: (a @ b).T[None] * f),
    "batches": (lambda b, c, g, **_: (c @ b)[:, None] * g, lambda b, c, g, **_: (c @ b)[:, None] * g),
    "between": (lambda d, h, **_: li.sum(d, -1)[:, None] * h, lambda d, h, **_: d.sum(-1)[:, None] * h),
    "made_of_a_sum": (lambda d, h, **_: li.relu(li.max(d, -1) - 0.5)[:, None] * h,
                      lambda d, h, **_: np.maximum(d.max(-1) - 0.5, 0)[:, None] * h),
    "over_the_middle": (lambda d, **_: d / li.sum(d * d, 1, keepdims=True),
                        lambda d, **_: d / (d * d).sum(1, keepdims=True)),
    "softmax_of_rows": (lambda d, **_: li.softmax(d, 0), lambda d, **_: np.exp(d) / np.exp(d).sum(0)),
    "place_of_the_largest": (lambda d, **_: li.convert(li.argmax(d, 1), "f32"), lambda d, **_: d.argmax(1)),
    "behind": (lambda d, i, **_: li.sum(d, -1)[..., None] * i, lambda d, i, **_: d.sum(-1)[..., None] * i),
}  # fmt: skip


@pytest.mark.vulkan
@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
def test_what_is_spread(named: bool, rng: np.random.Generator) -> None:
    need("vulkan")
    given = _inputs(named)
    found = {name: f(**given) for name, (f, _) in SPREADS.items()}
    sizes = {"M": 4, "N": 8, "B": 5}
    arrays = {
        n: rng.standard_normal([d if isinstance(d, int) else sizes[str(d)] for d in v.shape]).astype("f4")
        for n, v in given.items()
    }
    with li.compile(li.Graph("spread", list(given.values()), found), "vulkan", options={"cache": False}) as exe:
        got = exe(arrays)
    for name, (_, numpy) in SPREADS.items():
        want = numpy(**{n: a.astype("f8") for n, a in arrays.items()})
        np.testing.assert_allclose(got[name], want, rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.vulkan
def test_a_convolution_of_sums_has_its_gradient(rng: np.random.Generator) -> None:
    """A filter bank learned its weights from other rows."""
    need("vulkan")
    p, w = li.input("p", (2, 4, 2, 16)), li.input("w", (4, 4, 1))
    graph = li.Graph("bank", [p, w], {"loss": li.sum(li.square(li.conv1d(li.sum(p * p, 2), w)))})
    made = li.grad(graph, "loss", ["p", "w"])
    arrays = {"p": rng.standard_normal((2, 4, 2, 16)).astype("f4"), "w": rng.standard_normal((4, 4, 1)).astype("f4")}
    with li.compile(made, "vulkan", options={"cache": False}) as exe:
        got = exe(arrays)
    for name, want in li.interpret(made, arrays).items():
        np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=1e-4 * float(np.abs(want).max()), err_msg=name)

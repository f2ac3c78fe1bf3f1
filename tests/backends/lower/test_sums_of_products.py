"""Sums of products of named sizes: IREE packs the factors as those of matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_ir as li

SHAPES = {"a": ("T", "B", 40), "b": ("T", "B", 40), "m": ("T", "B"), "w": (40,)}
Array = np.ndarray[Any, Any]
Values = dict[str, li.Value]


def _softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


def _turned(v: li.Value) -> li.Value:
    return li.transpose(v, (1, 0, 2))


# By name: the graph, and its meaning in NumPy.
SUMS: dict[str, tuple[Callable[[Values], li.Value], Callable[[dict[str, Array]], Array]]] = {
    "weighted by what is computed": (
        lambda v: li.sum(v["a"] * li.softmax(v["m"], 0)[:, :, None], 0),
        lambda v: np.einsum("tbc,tb->bc", v["a"], _softmax(v["m"], 0)),
    ),
    "computed, over the first axis": (
        lambda v: li.sum(li.tanh(v["a"]) * v["m"][:, :, None], 0),
        lambda v: np.einsum("tbc,tb->bc", np.tanh(v["a"]), v["m"]),
    ),
    "computed, over the second axis": (
        lambda v: li.sum((v["a"] + v["b"] * 2.0) * v["m"][:, :, None], 1),
        lambda v: np.einsum("tbc,tb->tc", v["a"] + v["b"] * 2.0, v["m"]),
    ),
    "computed and turned": (
        lambda v: li.sum(_turned(li.tanh(v["a"])) * li.transpose(v["m"], (1, 0))[:, :, None], 1),
        lambda v: np.einsum("tbc,tb->bc", np.tanh(v["a"]), v["m"]),
    ),
    "of the columns": (lambda v: li.sum(li.tanh(v["a"]) * v["w"], 2), lambda v: np.tanh(v["a"]) @ v["w"]),
    "of all": (
        lambda v: li.sum(li.tanh(v["a"]) * v["m"][:, :, None]),
        lambda v: np.einsum("tbc,tb->", np.tanh(v["a"]), v["m"]),
    ),
    "by itself": (lambda v: li.sum(v["b"] * v["b"], 0), lambda v: np.einsum("tbc,tbc->bc", v["b"], v["b"])),
}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_sums_compile_at_once(rng: np.random.Generator, dtype: str) -> None:
    v = {n: li.input(n, s, dtype) for n, s in SHAPES.items()}
    sizes = {"a": (7, 3, 40), "b": (7, 3, 40), "m": (7, 3), "w": (40,)}
    arrays = {n: rng.standard_normal(s).astype("f4" if dtype == "f32" else "f8") for n, s in sizes.items()}
    arrays["b"][0, 1] = [np.inf, -np.inf, *[-0.0] * 38]
    graph = li.Graph("sums", list(v.values()), {k: build(v) for k, (build, _) in SUMS.items()})
    with li.compile(graph, options={"cache": False}) as exe:
        assert not [n for n in exe.report.notes if n.startswith("compiled with")]
        got = exe(arrays)
    wide = {n: a.astype("f8") for n, a in arrays.items()}
    for name, (_, meaning) in SUMS.items():
        np.testing.assert_allclose(got[name], meaning(wide), rtol=1e-4, atol=1e-5, err_msg=name)

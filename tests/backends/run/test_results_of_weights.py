"""Outputs that are weights, or are made of weights alone: a caller who writes into them changes no later call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

SHAPES = [(3,), (64, 96), (700, 300)]


def model(shape: tuple[int, ...]) -> li.Graph:
    """A weight, the same in another shape, what is made of it when the module is loaded, and what reads them."""
    rng = np.random.default_rng(len(shape) + shape[0])
    x, w = li.input("x", shape), li.weight("w", rng.standard_normal(shape).astype(np.float32))
    made, flat = li.tanh(w) * 2.0, int(np.prod(shape))
    outputs = {"w": w, "flat": li.reshape(w, (flat,)), "made": made, "literal": li.constant(np.arange(40, dtype="f4"))}
    return li.Graph("g", [x], {**outputs, "y": x + w + made})


def unchanged(exe: Any, x: Any) -> None:
    want = {n: a.copy() for n, a in exe(x=x).items()}
    for _ in range(2):
        for a in exe(x=x).values():
            a[...] = 99.0
        for n, a in exe(x=x).items():
            np.testing.assert_array_equal(a, want[n], err_msg=n)
    kept = exe(x=x, keep=True)
    for a in exe(x=x).values():  # what is kept is no window on what others get
        a[...] = 99.0
    for n, a in kept.items():
        np.testing.assert_array_equal(np.asarray(a), want[n], err_msg=n)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
def test_of_a_graph(target: str, shape: tuple[int, ...], rng: np.random.Generator) -> None:
    if target != "cpu":
        need(target)
    with li.compile(model(shape), target) as exe:
        unchanged(exe, rng.standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mapped", [False, True])
def test_of_a_package(mapped: bool, shape: tuple[int, ...], rng: np.random.Generator, tmp_path: Path) -> None:
    """Weights that stay in the file are read-only."""
    graph = model(shape)
    path = li.export(graph, tmp_path / "m.lirpkg", ["cpu:host"])
    before = path.read_bytes()
    with li.load(path, options={"map_weights": mapped}) as exe:
        unchanged(exe, rng.standard_normal(shape).astype(np.float32))
        np.testing.assert_array_equal(exe.weights["w"], graph.weights["w"].node.attrs["value"].array)
    assert path.read_bytes() == before

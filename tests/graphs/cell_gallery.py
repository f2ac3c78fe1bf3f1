"""The files of examples/cells/, and what the tests, the document and the benchmark make of them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from loaded_file import loaded
from paths import EXAMPLES

import lstm_ir as li

Arrays = dict[str, Any]
FOLDER = EXAMPLES / "cells"
NAMES = tuple(sorted(p.stem for p in FOLDER.glob("*.py")))
KINDS = ("dense", "block-diagonal", "elementwise linear", "elementwise nonlinear", "matrix state", "convolution")


@cache
def cell(name: str) -> Any:
    """The module of a file: NAME, KIND, SIZES, weights, layer, build, main."""
    return loaded(FOLDER / f"{name}.py")


def step(graph: li.Graph, wrt: list[str] | None = None) -> li.Graph:
    """Loss sum(y^2), and its gradients by these inputs and weights: without a list, by all."""
    y = graph.output("y")
    loss = li.Graph(graph.name, graph.params, {"loss": li.sum(y * y)})
    return li.grad(loss, "loss", [*graph.input_names, *graph.weights] if wrt is None else wrt)


def weights_given(name: str, T: int | str, B: int | str, I: int, H: int) -> li.Graph:
    """The cell in f32, whose weights are inputs behind its own."""
    graph = cell(name).build(T, B, I, H)
    weights = {n: li.input(n, v.shape) for n, v in graph.weights.items()}
    y = cell(name).layer(*graph.params, weights)
    return li.Graph(graph.name, [*graph.params, *weights.values()], {"y": y})


def inputs(graph: li.Graph, T: int, B: int, seed: int, dtype: str = "f4") -> Arrays:
    """Normal numbers for every input; times that elapse are positive."""
    rng, sizes = np.random.default_rng(seed), {"T": T, "B": B}
    found = {}
    for name, p in zip(graph.input_names, graph.params, strict=True):
        a = rng.standard_normal([sizes[str(n)] if str(n) in sizes else int(str(n)) for n in p.shape])
        found[name] = (np.abs(a) if name == "elapsed" else a).astype(dtype)
    return found

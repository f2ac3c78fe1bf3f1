"""A Keras model over PyTorch and what is made of it: results, and slopes of inputs and weights."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from keras_torch import numpy_of

import lstm_ir as li

Array = np.ndarray[Any, Any]


def close(got: Array, want: Array, limit: float, what: str) -> None:
    """Equal within `limit` of the largest number, and NaN where NaN is."""
    assert got.shape == want.shape, f"{what}: {got.shape}, Keras {want.shape}"
    assert got.dtype == want.dtype, f"{what}: {got.dtype}, Keras {want.dtype}"
    size = max(1.0, float(np.abs(want[np.isfinite(want)]).max(initial=0.0)))
    same = np.allclose(got, want, rtol=0, atol=limit * size, equal_nan=True)
    assert same, f"{what}: differs by {np.nanmax(np.abs(got - want)):.3g} of {size:.3g}"


def forward(
    graph: li.Graph, arrays: dict[str, Array], want: dict[str, Array], limit: float, run: Any = li.interpret
) -> None:
    """Results beside Keras' own."""
    got = run(graph, arrays)
    assert set(got) == set(want), (set(got), set(want))
    for name, w in want.items():
        close(got[name], w, limit, name)


def slopes(model: Any, graph: li.Graph, arrays: dict[str, Array], limit: float, rng: np.random.Generator) -> int:
    """Gradients of a sum of the results beside PyTorch's; how many there are."""
    import torch

    given = {n: torch.tensor(a, requires_grad=bool(a.dtype.kind == "f")) for n, a in arrays.items()}
    names = [t.name for t in model.inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model(given[names[0]] if len(names) == 1 else given)
    found = list(found) if isinstance(found, (list, tuple)) else [found]
    back = {f"ct_{n}": rng.uniform(-1, 1, tuple(v.shape)).astype(numpy_of(v).dtype)
            for n, v in zip(graph.output_names, found, strict=True)}  # fmt: skip
    for v in model.trainable_variables:
        v.value.grad = None
    sum((v * torch.tensor(c)).sum() for v, c in zip(found, back.values(), strict=True)).backward()
    want: dict[str, Any] = {n: t.grad for n, t in given.items() if t.requires_grad}
    for v in model.trainable_variables:  # a layer of a nested model has the model's name in front
        found = [n for n in graph.weights if n == v.path or n.endswith(f"/{v.path}")]
        if not found:  # no output needs it
            assert v.value.grad is None or not v.value.grad.any(), v.path
            continue
        assert len(found) == 1, (v.path, list(graph.weights))
        want[found[0]] = v.value.grad
    assert set(graph.weights) <= set(want)
    wrt = list(want)
    got = li.interpret(li.vjp(graph, list(graph.output_names), wrt, missing="zeros"), {**arrays, **back})
    for n in wrt:
        w = want[n]
        close(got[f"d_{n}"], np.zeros_like(got[f"d_{n}"]) if w is None else numpy_of(w), limit, f"slope of {n}")
    return len(wrt)

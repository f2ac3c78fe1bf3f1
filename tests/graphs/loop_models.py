"""Losses over a `scan` of cells: the models whose gradients are taken."""

from collections.abc import Callable
from typing import Any

import numpy as np

import lstm_ir as li

T, B, I, H = 11, 3, 5, 7
SEED = 77


def lstm_cell(state: Any, x: Any, w: Any, u: Any, b: Any, p: Any) -> Any:
    """Weights in both orientations, a bias, a peephole."""
    h, c = state
    z = x @ w.T + h @ li.transpose(u) + b
    i, f, g, o = (z[:, k * H : (k + 1) * H] for k in range(4))
    c = li.logistic(f + p * c) * c + li.logistic(i) * li.tanh(g)
    h = li.logistic(o) * li.tanh(c)
    return (h, c), h


def norm_cell(state: Any, x: Any, w: Any, u: Any, b: Any, p: Any) -> Any:
    """Layer norm over what a product gave, two results per step, one carry that is only counted."""
    h, c = state
    z = x @ w.T + h @ u.T
    mean = li.mean(z, -1, keepdims=True)
    z = (z - mean) * li.rsqrt(li.mean((z - mean) * (z - mean), -1, keepdims=True) + 0.1) + b
    h = li.tanh(z[:, :H]) * p + li.softmax(z[:, H : 2 * H]) * c
    return (h, c + 0.5 * h), h * 2.0 + c


def stepped_cell(state: Any, x: Any, w: Any, u: Any, b: Any, p: Any, step: Any) -> Any:
    """Reads the number of the step, and a constant by elements."""
    (h, c), _ = lstm_cell(state, x, w, u, b, p)
    return (h * li.exp(-0.1 * li.convert(step, "f64")), c), h


CELLS: dict[str, tuple[Callable[..., Any], bool]] = {
    "lstm": (lstm_cell, False),
    "norm": (norm_cell, False),
    "stepped": (stepped_cell, True),
}


def data(length: int = T) -> dict[str, Any]:
    rng = np.random.default_rng(SEED)
    shapes = {"x": (length, B, I), "w": (4 * H, I), "u": (4 * H, H), "b": (4 * H,), "p": (H,)}
    shapes |= {"h0": (B, H), "c0": (B, H), "bar": (length, B, H)}
    values: dict[str, Any] = {k: rng.normal(size=s) * 0.5 for k, s in shapes.items()}
    return values | {"n": np.int32(min(7, length)), "ends": np.array([length, 0, length // 2], np.int32)}


WRT = ["x", "w", "u", "b", "p", "h0", "c0"]


def model(
    cell: str, reverse: Any = False, dynamic: bool = True, length: int = T, **kw: Any
) -> tuple[li.Graph, dict[str, Any]]:
    """A loss over a loop; kw count or lengths True takes the input of that name."""
    values = data(length)
    v = {}
    for k, a in values.items():
        shape: list[Any] = list(a.shape)
        if dynamic and k in ("x", "bar"):
            shape[:2] = ["T", "B"]
        if dynamic and k in ("h0", "c0", "ends"):
            shape[0] = "B"
        v[k] = li.input(k, tuple(shape), a.dtype.name)
    f, with_step = CELLS[cell]
    (h, c), ys = li.scan(
        f, (v["h0"], v["c0"]), v["x"], (v["w"], v["u"], v["b"], v["p"]), reverse=reverse,
        count=v["n"] if kw.get("count") else None, lengths=v["ends"] if kw.get("lengths") else None,
        with_step=with_step,
    )  # fmt: skip
    loss = li.sum(ys * v["bar"]) + li.sum(h * h) + li.sum(li.sin(c))
    return li.Graph("g", v.values(), {"loss": loss}), values

"""Loops with `until` over rows, whose bodies are kernels; each says for a row from its own state that it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import lstm_ir as li

Array = np.ndarray[Any, Any]
K = 7  # columns of a scanned row


def weight(name: str, shape: tuple[int, ...], kind: str = "f32") -> li.Value:
    a = np.random.default_rng(len(name) + sum(shape)).standard_normal(shape) / np.sqrt(shape[0])
    return li.weight(name, a.astype(np.dtype(f"f{li.DType[kind].bits // 8}")))


def recurrent(B: Any, H: int, T: Any, kind: str = "f32", count: bool = False) -> li.Graph:
    """A product with the state, one with scanned rows; rows y, which are zero behind a row's end."""
    x, h0, limit = li.input("x", (T, B, K), kind), li.input("h0", (B, H), kind), li.input("limit", (), kind)
    w, u, o = weight("w", (H, H), kind), weight("u", (K, H), kind), weight("o", (H, 1), kind)

    def cell(h: Any, r: Any, limit: Any) -> Any:
        h = li.tanh(h @ w + r @ u)
        return h, (h, (h @ o)[:, 0])

    n = li.input("n", (), "i32") if count else None
    more: dict[str, Any] = {"until": lambda h, y: y[1] > limit, "count": n}
    h, (y, s), steps = li.scan(cell, h0, x, limit, **more)
    inputs = [x, h0, limit, *([] if n is None else [n])]
    return li.Graph("main", inputs, {"h": h, "y": y, "s": s, "steps": steps})


def elementwise(B: Any, H: int, T: Any) -> li.Graph:
    """No product: a step is shared by nobody. Two states that do not know each other; one says when it ends."""
    x, limit = li.input("x", (T, B, H)), li.input("limit", ())

    def cell(s: Any, r: Any, limit: Any) -> Any:
        a, b = s
        return (a * 0.5 + r, b * 0.9 + 1.0), li.max(a, 1)

    zero = li.zeros((B, H))
    (a, b), y, steps = li.scan(cell, (zero, zero), x, limit, until=lambda s, y: y > limit)
    return li.Graph("main", [x, limit], {"a": a, "b": b, "y": y, "steps": steps})


def of_one_row(H: int, T: Any) -> li.Graph:
    """A flag of the loop: one row has no others."""
    x, limit = li.input("x", (T, 1, H)), li.input("limit", ())
    w = weight("w", (H, H))

    def cell(h: Any, r: Any, limit: Any) -> Any:
        h = li.tanh(h @ w + r)
        return h, li.sum(h)

    h, y, steps = li.scan(cell, li.zeros((1, H)), x, limit, until=lambda h, y: y > limit)
    return li.Graph("main", [x, limit], {"h": h, "y": y, "steps": steps})


GRAPHS: dict[str, Callable[[], li.Graph]] = {
    "recurrent": lambda: recurrent(5, 24, 19),
    "wide": lambda: recurrent(3, 200, 11),
    "named": lambda: recurrent("B", 40, "T"),
    "doubles": lambda: recurrent(4, 24, 19, "f64"),
    "counted": lambda: recurrent(3, 24, 19, count=True),
    "elementwise": lambda: elementwise(6, 9, 23),
    "elementwise_named": lambda: elementwise("B", 40, "T"),
    "one_row": lambda: of_one_row(24, 17),
}


def arrays(graph: li.Graph, rng: np.random.Generator, T: int = 21, B: int = 5) -> dict[str, Array]:
    """Random inputs, and a limit that some rows reach."""
    out: dict[str, Array] = {}
    for name, v in zip(graph.input_names, graph.params, strict=True):
        shape = [d if isinstance(d, int) else {"T": T, "B": B}[str(d)] for d in v.shape]
        out[name] = rng.standard_normal(shape).astype(v.dtype.numpy)
    out["limit"] = np.asarray(rng.choice([-9.0, 0.4, 0.8, 1.2, 9.0]), out["limit"].dtype)
    if "n" in out:
        out["n"] = np.asarray(rng.integers(0, 20), np.int32)
    return out

"""A small classifier that trains, and batches for it."""

from __future__ import annotations

from typing import Any

import numpy as np

import lstm_ir as li

Array = np.ndarray[Any, Any]
B, I, H, C = 6, 5, 16, 2


def model(optimizer: Any = None, kind: str = "f4", **options: Any) -> li.Program:
    """x [B,5], label [B] -> loss, accuracy, scores; `train` shows the accuracy, `evaluate` is there."""
    rng = np.random.default_rng(7)
    shapes = {"in/w": (H, I), "in/b": (H,), "out/w": (C, H)}
    w = {n: li.weight(n, rng.uniform(-0.5, 0.5, s).astype(kind)) for n, s in shapes.items()}
    x, label = li.input("x", ("B", I), {"f4": "f32", "f8": "f64"}[kind]), li.input("label", ("B",), "i32")
    scores = li.dense(li.tanh(li.dense(x, w["in/w"], w["in/b"])), w["out/w"])
    accuracy = li.mean(li.convert(li.equal(li.argmax(scores, 1), label), "f32"))
    graph = li.Graph(
        "fit", [x, label], {"loss": li.cross_entropy(scores, label), "accuracy": accuracy, "scores": scores}
    )
    asked = li.adam(0.02) if optimizer is None else optimizer
    return li.train_step(graph, "loss", asked, outputs="accuracy", evaluate=True, **options)


def batches(seed: int, count: int) -> list[dict[str, Array]]:
    """The label says whether the first two columns have one sign."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        x = rng.standard_normal((B, I)).astype("f4")
        out.append({"x": x, "label": (x[:, 0] * x[:, 1] > 0).astype("i4")})
    return out

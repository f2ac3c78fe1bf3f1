"""What the tests of training by several processes train, and PyTorch's losses of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import lstm_ir as li

I, H, C, T, B = 5, 7, 4, 6, 7
Array = np.ndarray[Any, Any]
SHAPES = {"w_ih": (4 * H, I), "w_hh": (4 * H, H), "b": (4 * H,), "out": (C, H)}
RATE, CLIP = 0.05, 1.0


def weights() -> dict[str, Array]:
    rng = np.random.default_rng(20261204)
    return {n: rng.uniform(-0.5, 0.5, s).astype(np.float32) for n, s in SHAPES.items()}


def classifier(folder: Path, *, mask: bool = False, total: bool = False) -> Path:
    """A package: x [T, B, I], label [B] and lr train by Adam; with `mask` [B] the loss is over chosen rows alone, with
    `total` it is a sum.
    """
    w = {n: li.weight(n, a) for n, a in weights().items()}
    x, label, chosen = li.input("x", ("T", "B", I)), li.input("label", ("B",), "i32"), li.input("mask", ("B",), "i1")
    _, h, _ = li.lstm(x, w["w_ih"], w["w_hh"], w["b"])
    scores = li.dense(h[0], w["out"])
    if total:
        loss = -li.sum(li.log_softmax(scores, 1)[:, 0])
    else:
        loss = li.cross_entropy(scores, label, chosen) if mask else li.cross_entropy(scores, label)
    inputs = [x, *([] if total else [label]), *([chosen] if mask else [])]
    graph = li.Graph("classifier", inputs, {"loss": loss})
    program = li.train_step(graph, loss="loss", optimizer=li.adam("lr"), clip_norm=CLIP, grads=True)
    return li.export(program, folder / "classifier.lirpkg", ["cpu:host"])


def batch(step: int, rows: int = B) -> dict[str, Array]:
    """The batch of this step, with its learning rate."""
    rng = np.random.default_rng([20261205, step])
    label = rng.integers(0, C, rows).astype(np.int32)
    x = rng.standard_normal((T, rows, I)).astype(np.float32) + 0.3 * label[:, None].astype(np.float32)
    return {"x": x, "label": label, "lr": np.asarray(RATE, np.float32)}


def torch_losses(batches: list[dict[str, Array]]) -> list[float]:
    """Of one process with whole batches."""
    import torch

    w = {n: torch.tensor(a) for n, a in weights().items()}
    cell, out = torch.nn.LSTM(I, H), torch.nn.Linear(H, C, bias=False)
    with torch.no_grad():
        cell.weight_ih_l0.copy_(w["w_ih"])
        cell.weight_hh_l0.copy_(w["w_hh"])
        cell.bias_ih_l0.copy_(w["b"])
        cell.bias_hh_l0.zero_()
        out.weight.copy_(w["out"])
    cell.bias_hh_l0.requires_grad_(False)
    trained = [p for p in [*cell.parameters(), *out.parameters()] if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=RATE)
    losses = []
    for b in batches:
        optimizer.zero_grad()
        _, (h, _) = cell(torch.tensor(b["x"]))
        loss = torch.nn.functional.cross_entropy(out(h[0]), torch.tensor(b["label"]).long())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, CLIP)
        optimizer.step()
        losses.append(loss.item())
    return losses

"""What the servers of the tests serve, and what torch says about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import lstm_ir as li

I, H, C = 5, 7, 3
X = {"name": "x", "shape": [1, 1, I], "datatype": "FP32", "data": [0.5] * I}  # a step of one row, as JSON has it
STEP = json.dumps({"inputs": [X]}).encode()
KEPT = {"h0": "h_n", "c0": "c_n"}
Array = np.ndarray[Any, Any]
WEIGHTS = {
    n: np.random.default_rng(11).uniform(-0.6, 0.6, s).astype(np.float32)
    for n, s in (("w_ih", (4 * H, I)), ("w_hh", (4 * H, H)), ("w_out", (C, H)))
}


def encoder(path: Path) -> Path:
    """A package: x [T, B, I] and lengths [B] -> y [T, B, H] and scores [B, C]."""
    x, lengths = li.input("x", ("T", "B", I)), li.input("lengths", ("B",), "i32")
    w = {n: li.weight(n, a) for n, a in WEIGHTS.items()}
    y, h_n, _ = li.lstm(x, w["w_ih"], w["w_hh"], lengths=lengths)
    graph = li.Graph("encoder", [x, lengths], {"y": y, "scores": li.dense(h_n[0], w["w_out"])})
    return li.export(graph, path / "encoder.lirpkg", ["cpu:host"])


def stream(path: Path) -> Path:
    """A package that keeps h and c: x [T, B, I] -> y [T, B, H]."""
    x = li.input("x", ("T", "B", I))
    h0, c0 = (li.input(n, (1, "B", H)) for n in KEPT)
    w_ih, w_hh = (li.weight(n, WEIGHTS[n]) for n in ("w_ih", "w_hh"))
    y, h_n, c_n = li.lstm(x, w_ih, w_hh, h0=h0, c0=c0)
    graph = li.Graph("stream", [x, h0, c0], {"y": y, "h_n": h_n, "c_n": c_n})
    return li.export(li.stateful(graph, KEPT), path / "stream.lirpkg", ["cpu:host"])

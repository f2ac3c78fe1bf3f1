"""What the example in C is run with: open sizes, state, integers, training; weights that tests know."""

from __future__ import annotations

import numpy as np

import lstm_ir as li
from lstm_ir.ir.program import Program

W, R = (0.4 * np.random.default_rng(20261127).standard_normal(s).astype(np.float32) for s in ((28, 5), (28, 7)))


def encoder() -> li.Graph:
    x = li.input("x", ("T", "B", 5))
    y, h, _ = li.lstm(x, li.weight("w", W), li.weight("r", R))
    return li.Graph("encoder", [x], {"y": y, "h": h[0]})


def table() -> li.Graph:
    """Nothing to share among threads; integers, booleans, and a size that is an expression."""
    at, mask = li.input("at", ("2*B",), "i32"), li.input("mask", ("2*B", 1), "i1")
    rows = li.embedding(li.weight("rows", R), at)
    return li.Graph("table", [at, mask], {"rows": li.where(mask, rows, -rows), "next": at + 1})


def streamed() -> Program:
    """One state starts at numbers that differ from unit to unit and are the same in every row, the other at zeros."""
    x, h0, c0 = li.input("x", ("T", "B", 5)), li.input("h0", (1, "B", 7)), li.input("c0", (1, "B", 7))
    y, h, c = li.lstm(x, li.weight("w", W), li.weight("r", R), h0=h0, c0=c0)
    graph = li.Graph("streamed", [x, h0, c0], {"y": y, "h_n": h, "c_n": c})
    return li.stateful(graph, {"h0": "h_n", "c0": "c_n"}, {"h0": R[0].reshape(1, 1, 7)})


def trained() -> Program:
    """Its weights are state; a step takes a rate without axes."""
    x, label = li.input("x", ("T", "B", 5)), li.input("label", ("B",), "i32")
    _, h, _ = li.lstm(x, li.weight("w", W), li.weight("r", R))
    graph = li.Graph("trained", [x, label], {"loss": li.cross_entropy(h[0], label)})
    return li.train_step(graph, loss="loss", optimizer=li.adam("lr"))

"""A graph of one LSTM layer over weights of its own."""

from __future__ import annotations

import numpy as np

import lstm_ir as li

SIZES = (20, 3, 64, 96)


def lstm(sizes: tuple[int, int, int, int] = SIZES, seed: int = 3) -> li.Graph:
    T, B, I, H = sizes
    rng = np.random.default_rng(seed)
    x = li.input("x", (T, B, I))
    w, r = (li.weight(n, rng.uniform(-0.1, 0.1, (4 * H, k)).astype(np.float32)) for n, k in (("w", I), ("r", H)))
    return li.Graph("g", [x], {"y": li.lstm(x, w, r)[0]})

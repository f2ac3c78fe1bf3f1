"""The LSTM from its equations, gates i, f, g, o, in NumPy and f64: a whole layer from zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def plain_lstm(x: Array, w_ih: Array, w_hh: Array, b: Array | float = 0.0) -> Array:
    """y [T,B,H] of x [T,B,I], w_ih [4H,I], w_hh [4H,H], b [4H]."""
    w, r, bias = (np.asarray(a, np.float64) for a in (w_ih, w_hh, b))
    h = c = np.zeros((x.shape[1], r.shape[1]))
    out = []
    for row in x.astype(np.float64):
        i, f, g, o = np.split(row @ w.T + h @ r.T + bias, 4, axis=1)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        out.append(h)
    return np.stack(out)

"""torch's LSTM on the rows of a batch, one after another, each as long as it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from device import need

Array = np.ndarray[Any, Any]


def torch_lstm(x: Array, weights: Mapping[str, Array], lengths: Array | None = None) -> dict[str, Array]:
    """`y` [T, B, H], zero behind a row's length, and `scores` [B, C] = h_n @ w_out.T, of x [T, B, I]."""
    need("torch")
    import torch

    steps, rows, width = x.shape
    hidden = weights["w_hh"].shape[1]
    layer = torch.nn.LSTM(width, hidden, bias=False)
    layer.weight_ih_l0.data = torch.from_numpy(weights["w_ih"])
    layer.weight_hh_l0.data = torch.from_numpy(weights["w_hh"])
    y = np.zeros((steps, rows, hidden), np.float32)
    last = np.zeros((rows, hidden), np.float32)
    with torch.no_grad():
        for row in range(rows):
            n = steps if lengths is None else int(lengths[row])
            out, (h, _) = layer(torch.from_numpy(x[:n, row : row + 1].copy()))
            y[:n, row] = out[:, 0].numpy()
            last[row] = h[0, 0].numpy()
    return {"y": y, "scores": last @ weights["w_out"].T}

"""Layers that PyTorch recorded (record_torch.py), as graphs over inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import paths

import lstm_ir as li

GOLDEN = paths.GOLDEN / "torch"
RECORDED = sorted(p.stem for p in GOLDEN.glob("*.npz"))


def close(got: Any, want: Any, tolerance: float) -> None:
    assert got.shape == want.shape
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * scale)


def recorded(stem: str) -> tuple[dict[str, Any], Any]:
    with np.load(GOLDEN / f"{stem}.npz") as data:
        return dict(data), stem.split("_")


def torch_graph(data: dict[str, Any], parts: Any, names: dict[str, str] | None = None) -> li.Graph:
    """A stack of layers over the recorded weights, all of them inputs."""
    inputs = {k: li.input(k, v.shape, v.dtype.name) for k, v in data.items() if "/" not in k}
    op = parts[0]
    ways = ["", "_reverse"] if "bi" in parts else [""]
    layers = int(next(p for p in parts if p[0] == "l" and p[1:].isdigit())[1:])
    y, h_n, c_n = inputs["x"], [], []
    for depth in range(layers):

        def w(kind: str, depth: int = depth) -> Any:
            found = [f"{kind}_l{depth}{way}" for way in ways]
            return li.stack([inputs[n] for n in found]) if found[0] in inputs else None

        at = slice(depth * len(ways), (depth + 1) * len(ways))
        given: dict[str, Any] = {"lengths": inputs["lengths"], "h0": inputs["h_0"][at]}
        given["direction"] = "bidirectional" if len(ways) == 2 else "forward"
        b, b_h = w("bias_ih"), w("bias_hh")
        if op == "lstm":
            r = li.lstm(y, w("weight_ih"), w("weight_hh"), b + b_h, c0=inputs["c_0"][at], w_hr=w("weight_hr"), **given)
            c_n.append(r.c_n)
        elif op == "gru":
            H = b.shape[1] // 3
            b = li.concat([b[:, : 2 * H] + b_h[:, : 2 * H], b[:, 2 * H :]], 1)
            r = li.gru(y, w("weight_ih"), w("weight_hh"), b, b_hn=b_h[:, 2 * H :], **given)
        else:
            given["activations"] = (parts[1],) * len(ways)
            r = li.rnn(y, w("weight_ih"), w("weight_hh"), b + b_h, **given)
        y = r.y
        h_n.append(r.h_n)
    outputs = {"output": y, "h_n": li.concat(h_n)} | ({"c_n": li.concat(c_n)} if c_n else {})
    used = li.Graph("probe", inputs.values(), outputs)
    return used

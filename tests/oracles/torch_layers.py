"""The core recurrent ops as plain PyTorch, from the equations, so that autograd gives gradients.

Nothing here is shared with the package or with plain_layers.py. All rows of a batch at once; a row
that does not exist at a step keeps its state by selection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Operands = Mapping[str, Any]
DEFAULT = {
    "lstm": ["sigmoid", "sigmoid", "tanh", "sigmoid", "tanh"],
    "gru": ["sigmoid", "sigmoid", "tanh"],
    "rnn": ["tanh"],
}
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
SAVED = {"lstm": ("gates", "cells", "activated"), "gru": ("gates", "inner"), "rnn": ("pre",)}


def activation(text: str) -> Callable[[Any], Any]:
    import torch
    from torch.nn import functional as f

    name, _, rest = text.rstrip(")").partition("(")
    p = [float(v) for v in rest.split(",")] if rest else []
    table: dict[str, Callable[[Any], Any]] = {
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "relu": torch.relu,
        "softsign": f.softsign,
        "softplus": f.softplus,
        "affine": lambda x: p[0] * x + p[1],
        "hard_sigmoid": lambda x: (p[0] * x + p[1]).clamp(0, 1),
        "leaky_relu": lambda x: f.leaky_relu(x, p[0]),
        "elu": lambda x: f.elu(x, p[0]),
        "scaled_tanh": lambda x: p[0] * torch.tanh(p[1] * x),
        "thresholded_relu": lambda x: f.threshold(x, p[0], 0.0),
    }
    return table[name]


def _held(x: Any, limit: float, straight: bool = False) -> Any:
    if not limit > 0:
        return x
    inside = x.clamp(-limit, limit)
    return x + (inside - x).detach() if straight else inside


def _lstm(z: Any, h: Any, c: Any, o: Operands, act: Any, a: Operands) -> tuple[Any, Any, Any]:
    import torch

    limit, width = a.get("gate_clip", 0.0), c.shape[1]
    z_i, z_f, z_g, z_o = (z + h @ o["w_hh"].T).chunk(4, 1)
    z_f = z_f + a.get("forget_bias", 0.0)
    p = o.get("peephole")
    if p is not None:
        z_i, z_f = z_i + p[:width] * c, z_f + p[width : 2 * width] * c
        if len(p) == 4 * width:
            z_g = z_g + p[2 * width : 3 * width] * c
    i, g = act[0](_held(z_i, limit)), act[2](_held(z_g, limit))
    f = 1 - i if a.get("input_forget") else act[1](_held(z_f, limit))
    straight = a.get("clip_gradient") == "straight_through"
    new = _held(f * c + i * g, a.get("cell_clip", 0.0), straight)
    if p is not None:
        z_o = z_o + p[-width:] * (c if a.get("output_peephole") == "previous" else new)
    out, k = act[3](_held(z_o, limit)), act[4](new)
    m = out * k
    m = m if o.get("w_hr") is None else m @ o["w_hr"].T
    return m, new, (torch.cat([i, f, g, out], 1), new, k)


def _gru(z: Any, h: Any, c: Any, o: Operands, act: Any, a: Operands) -> tuple[Any, Any, Any]:
    """`h` is masked; `c` is the state as it is."""
    import torch

    limit = a.get("gate_clip", 0.0)
    (z_r, z_z, z_n), (w_r, w_z, w_n) = z.chunk(3, 1), o["w_hh"].chunk(3, 0)
    r, u = act[0](_held(z_r + h @ w_r.T, limit)), act[1](_held(z_z + h @ w_z.T, limit))
    k = h @ w_n.T + (0 if o.get("b_hn") is None else o["b_hn"])
    after = a.get("reset_after", True)
    n = act[2](_held(z_n + (r * k if after else (r * h) @ w_n.T), limit))
    new = (1 - u) * c + u * n if a.get("flip_z") else u * c + (1 - u) * n
    return new, c, (torch.cat([r, u, n], 1), *([k] if after else []))


def _rnn(z: Any, h: Any, c: Any, o: Operands, act: Any, a: Operands) -> tuple[Any, Any, Any]:
    pre = z + h @ o["w_hh"].T
    return act[0](_held(pre, a.get("gate_clip", 0.0))), c, (pre,)


STEPS = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}


def run(op: str, o: Operands, a: Operands) -> dict[str, Any]:
    """Every result of the op with save=True, from tensors."""
    import torch

    batch = a.get("layout") == "batch"
    x = o["x"].transpose(0, 1) if batch else o["x"]
    (T, B), (D, G, P) = x.shape[:2], o["w_hh"].shape
    H, kind = G // GATES[op], o["x"].dtype
    acts = list(a.get("activations", ())) or DEFAULT[op] * D
    per = len(acts) // D
    ends = torch.full((B,), T) if o.get("lengths") is None else torch.tensor(o["lengths"])
    ends = ends if o.get("count") is None else ends.clamp(max=int(o["count"]))
    direction = a.get("direction", "forward")
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    sides, states = [], []
    for d, backwards in enumerate(ways):
        row = {k: o[k][d] for k in ("w_hh", "w_hr", "peephole", "b_hn") if o.get(k) is not None}
        act = [activation(t) for t in acts[per * d : per * d + per]]
        h = torch.zeros(B, P, dtype=kind) if o.get("h0") is None else o["h0"][d]
        c = torch.zeros(B, H, dtype=kind) if o.get("c0") is None else o["c0"][d]
        mask = 1 if o.get("recurrent_mask") is None else o["recurrent_mask"][d]
        lines: list[Any] = [None] * T
        for t in reversed(range(T)) if backwards else range(T):
            z = x[t] @ o["w_ih"][d].T if o.get("w_ih") is not None else x[t].chunk(D, 1)[d]
            z = z if o.get("b") is None else z + o["b"][d]
            there = (t < ends)[:, None]
            new, cell, kept = STEPS[op](z, h * mask, c if op == "lstm" else h, row, act, a)
            h = torch.where(there, new, h)
            c = torch.where(there, cell, c)
            y = h if a.get("padding") == "hold" else torch.where(there, new, 0.0)
            lines[t] = (y, *(torch.where(there, v, 0.0) for v in kept))
        sides.append([torch.stack(v) for v in zip(*lines, strict=True)])
        states.append((h, c))
    names = ("y", *SAVED[op])
    found = {n: torch.cat(v, 2) for n, *v in zip(names, *sides, strict=False)}
    out = {n: v.transpose(0, 1) if batch else v for n, v in found.items()}
    out["h_n"] = torch.stack([h for h, _ in states])
    return out | ({"c_n": torch.stack([c for _, c in states])} if op == "lstm" else {})


def gradients(op: str, o: Operands, a: Operands, bars: Operands) -> dict[str, np.ndarray[Any, Any]]:
    """`d_NAME` of sum(bar * result) for every float operand, by autograd."""
    import torch

    wrt = {k: torch.tensor(v, requires_grad=True) for k, v in o.items() if v.dtype.kind == "f"}
    results = run(op, {**o, **wrt}, a)
    loss = sum((torch.tensor(bars[k]) * v).sum() for k, v in results.items())
    grads = torch.autograd.grad(loss, list(wrt.values()))
    return {f"d_{k}": g.numpy() for k, g in zip(wrt, grads, strict=True)}

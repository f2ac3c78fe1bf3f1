"""Loops with a matrix state in torch, one row of the batch after another: an oracle of chunks of steps.

A row runs over its own steps alone, forwards or from its last one back, so that `lengths` and `reverse` need no masks.
Steps take a state [H,K,V], q and k [H,K], v [H,V] and two gates [H] of one row, and give the next state and y.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Arrays = dict[str, Any]
ROWS = ("q", "k", "v", "i", "f")


def plus_pair(s: Any, decay: Any, k: Any, v: Any) -> Any:
    """decay S + k v^T."""
    import torch

    return decay * s + torch.einsum("hk,hv->hkv", k, v)


def read(q: Any, s: Any) -> Any:
    """[H,V]."""
    import torch

    return torch.einsum("hk,hkv->hv", q, s)


def retnet(s: Any, q: Any, k: Any, v: Any, i: Any, f: Any) -> Any:
    s = plus_pair(s, 0.9, k, v)
    return s, (read(q, s),)


def mamba2(s: Any, q: Any, k: Any, v: Any, i: Any, f: Any) -> Any:
    import torch

    soft = torch.nn.functional.softplus
    before = read(q, s)
    s = plus_pair(s, torch.exp(-soft(f))[:, None, None], soft(i)[:, None] * k, v)
    return s, (before, read(q, s) + 0.5 * v)


def bonus(s: Any, q: Any, k: Any, v: Any, i: Any, f: Any) -> Any:
    y = read(q, plus_pair(s, 1.0, i[:, None] * k, v))
    return plus_pair(s, f[:, None, None], k, v), (y,)


def gated_linear_attention(s: Any, q: Any, k: Any, v: Any, i: Any, f: Any) -> Any:
    import torch

    before = read(k, s)
    s = plus_pair(s, torch.sigmoid(q + f[:, None])[:, :, None], k, v)
    return s, (before, read(q, s))


def a_decay_for_each_column(s: Any, q: Any, k: Any, v: Any, i: Any, f: Any) -> Any:
    import torch

    s = plus_pair(s, torch.tanh(v + i[:, None])[:, None], k, v)
    return s, (read(q, s), read(k, 2 * s))


def any_decay_of_keys(s: Any, q: Any, k: Any, v: Any, i: Any, f: Any) -> Any:
    s = plus_pair(s, q[:, :, None], k, v)
    return s, (read(k, s),)


STEPS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        retnet, mamba2, bonus, gated_linear_attention, a_decay_for_each_column, any_decay_of_keys,
    )
}  # fmt: skip


def run(name: str, given: Arrays, weigh: Callable[[int, Any], Any], reverse: bool) -> tuple[list[Any], Arrays]:
    """The last state and rows, as the graphs of matrix_cells.py give them, and the gradients of the sum of
    weigh(number, result) over these results."""
    import torch

    leaves = {n: torch.tensor(given[n], requires_grad=True) for n in (*ROWS, "first") if n in given}
    T, B, H, K = given["q"].shape
    V = given["v"].shape[3]
    lengths = given.get("lengths", np.full(B, T))
    states, rows = [], []
    for b in range(B):
        s = leaves["first"][b] if "first" in leaves else torch.zeros(H, K, V, dtype=torch.float64)
        found: dict[int, Any] = {}
        steps = range(int(lengths[b]))
        for t in reversed(steps) if reverse else steps:
            s, found[t] = STEPS[name](s, *(leaves[n][t, b] for n in ROWS))
        states.append(s)
        rows.append(found)
    count = len(STEPS[name](torch.zeros(H, K, V), *(torch.zeros(H, n) for n in (K, K, V)), *torch.zeros(2, H))[1])
    nothing = torch.zeros(H, V, dtype=torch.float64)
    ys = [
        torch.stack([torch.stack([rows[b][t][j] if t in rows[b] else nothing for b in range(B)]) for t in range(T)])
        for j in range(count)
    ]
    outs = [torch.stack(states), *ys]
    total = sum(weigh(j, out).sum() for j, out in enumerate(outs))
    total.backward()
    zero = {n: np.zeros_like(given[n]) for n in leaves}
    slopes = {n: zero[n] if a.grad is None else a.grad.numpy() for n, a in leaves.items()}
    return [out.detach().numpy() for out in outs], slopes

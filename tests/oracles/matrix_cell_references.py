"""Cells with a matrix state from their equations: part of cell_references.py."""

from __future__ import annotations

from typing import Any

from cell_libraries import HEADS, Library, by_heads, softplus

Arrays = dict[str, Any]


def mlstm(l: Library, given: Arrays, w: Arrays) -> Any:
    def step(carry: Any, row: Any) -> Any:
        (C, n, m), (q, k, v, i, log_f) = carry, row
        new = l.np.maximum(log_f + m, i)
        keep, write = l.np.exp(log_f + m - new)[..., None], l.np.exp(i - new)[..., None]
        C = keep[..., None] * C + l.np.einsum("bni,bnj->bnij", write * v, k)
        n = keep * n + write * k
        reach = l.np.abs(l.np.einsum("bnj,bnj->bn", n, q))
        h = l.np.einsum("bnij,bnj->bni", C, q) / l.np.maximum(reach, l.np.exp(-new))[..., None]
        return (C, n, new), h

    x = given["x"]
    q, k, v = (by_heads(x @ w[f"W_{p}"]) for p in "qkv")
    gates = x @ w["W_if"] + w["b_if"]
    i, log_f = gates[..., :HEADS], -softplus(l, -gates[..., HEADS:])
    B, d = x.shape[1], q.shape[-1]
    first = (l.zeros(x, (B, HEADS, d, d)), l.zeros(x, (B, HEADS, d)), l.zeros(x, (B, HEADS)))
    h = l.scan(step, first, (q, k / d**0.5, v, i, log_f))
    return l.sigmoid(x @ w["W_o"]) * h.reshape(*x.shape[:2], -1)


def retnet(l: Library, given: Arrays, w: Arrays) -> Any:
    x = given["x"]
    q, k, v = (by_heads(x @ w[f"W_{p}"]) for p in "qkv")
    d = q.shape[-1]
    decay = l.array(x, [[[1 - 2.0 ** (-5 - head)]] for head in range(HEADS)])

    def step(S: Any, row: Any) -> Any:
        q, k, v = row
        S = decay * S + l.np.einsum("bni,bnj->bnij", k, v)
        return S, l.np.einsum("bnij,bni->bnj", S, q)

    y = l.scan(step, l.zeros(x, (x.shape[1], HEADS, d, d)), (q, k / d**0.5, v))
    return y.reshape(*x.shape[:2], -1)


def gated_delta(l: Library, given: Arrays, w: Arrays) -> Any:
    def unit(a: Any) -> Any:
        return a / l.np.sqrt(l.np.sum(a**2, axis=-1, keepdims=True) + 1e-6)

    def step(S: Any, row: Any) -> Any:
        q, k, v, alpha, beta = row
        S = alpha[..., None, None] * S  # S [B, head, value, key]
        wrong = v - l.np.einsum("bnij,bnj->bni", S, k)
        S = S + l.np.einsum("bni,bnj->bnij", beta[..., None] * wrong, k)
        return S, l.np.einsum("bnij,bnj->bni", S, q)

    x = given["x"]
    q, k, v = (by_heads(x @ w[f"W_{p}"]) for p in "qkv")
    d = q.shape[-1]
    alpha = l.np.exp(-l.np.exp(w["A"]) * softplus(l, x @ w["W_alpha"] + w["b_alpha"]))
    rows = (unit(q) / d**0.5, unit(k), v, alpha, l.sigmoid(x @ w["W_beta"]))
    return l.scan(step, l.zeros(x, (x.shape[1], HEADS, d, d)), rows).reshape(*x.shape[:2], -1)


def rwkv7(l: Library, given: Arrays, w: Arrays) -> Any:
    def step(S: Any, row: Any) -> Any:
        r, v, decay, key, unit, rate = row  # S [B, head, value, key]
        seen = l.np.einsum("bnij,bnj->bni", S, unit)
        S = S * decay[..., None, :] - l.np.einsum("bni,bnj->bnij", seen, rate * unit)
        S = S + l.np.einsum("bni,bnj->bnij", v, key)
        return S, l.np.einsum("bnij,bnj->bni", S, r)

    x = given["x"]
    r, k, v = (x @ w[f"W_{p}"] for p in "rkv")
    decay = l.np.exp(-0.6065306597126334 * l.sigmoid(l.np.tanh(x @ w["W_w"]) @ w["V_w"] + w["b_w"]))
    rate = l.sigmoid(x @ w["W_a"] @ w["V_a"] + w["b_a"])
    unit = by_heads(k * w["xi"])
    unit = unit / l.np.sqrt(l.np.sum(unit**2, axis=-1, keepdims=True) + 1e-12)
    r, v, decay, key, rate = map(by_heads, (r, v, decay, k * (1 + (rate - 1) * w["alpha"]), rate))
    d = r.shape[-1]
    y = l.scan(step, l.zeros(x, (x.shape[1], HEADS, d, d)), (r, v, decay, key, unit, rate))
    return y.reshape(*x.shape[:2], -1)

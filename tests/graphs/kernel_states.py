"""Loops whose rows and columns stand anywhere, with matrices of each row, states as matrices, and draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from kernel_bodies import Body, Loop, four_gates

import lstm_ir as li
from lstm_ir.ops.nn import threefry

STATES: dict[str, Body] = {}
NO_GRADIENT = ("generated", "drawn")


def state(f: Body) -> Body:
    STATES[f.__name__] = f
    return f


def selective(s: Loop, n: int, first: bool) -> dict[str, li.Value]:
    """s = exp(d A) s + d x b, y = sum_n s c; the states stand first, or last."""
    x, d = s.input("x", s.T, s.B, s.H), s.input("d", s.T, s.B, s.H)
    b, c, a = s.input("b", s.T, s.B, n), s.input("c", s.T, s.B, n), s.weight(s.H, n)
    start = s.input("s0", *((n, s.B, s.H) if first else (s.B, s.H, n)))

    def of_states(v: Any) -> Any:
        return li.expand_dims(li.transpose(v, (1, 0)), 2) if first else li.expand_dims(v, 1)

    def of_channels(v: Any) -> Any:
        return li.expand_dims(v, 0 if first else 2)

    def cell(state: Any, row: Any, a: Any) -> Any:
        x, d, b, c = row
        d = li.logistic(d)
        decay = li.expand_dims(li.transpose(a, (1, 0)), 1) if first else li.expand_dims(a, 0)
        state = li.exp(of_channels(d) * decay) * state + of_channels(d * x) * of_states(b)
        return state, li.sum(state * of_states(c), 0 if first else 2)

    last, y = li.scan(cell, start, (x, d, b, c), (a,))
    return {"last": last, "y": y}


@state
def states_first(s: Loop) -> dict[str, li.Value]:
    return selective(s, 3, True)


@state
def many_states_first(s: Loop) -> dict[str, li.Value]:
    return selective(s, 19, True)


@state
def states_last(s: Loop) -> dict[str, li.Value]:
    return selective(s, 17, False)


def attended(s: Loop, n: int, additive: bool) -> dict[str, li.Value]:
    """Attention over n places of each row, and an LSTM of what it found."""
    keys, values = s.input("keys", s.B, n, s.H), s.input("values", s.B, n, s.H)
    q, w, v = s.weight(s.H, s.H), s.weight(s.I + 2 * s.H, 4 * s.H), s.weight(s.H)

    def cell(state: Any, x: Any, q: Any, w: Any, v: Any, keys: Any, values: Any) -> Any:
        h, c = state
        asked = li.dot(h, q)
        if additive:
            score = li.sum(li.tanh(li.expand_dims(asked, 1) + keys) * li.reshape(v, (1, 1, s.H)), 2)
        else:
            score = li.einsum("bd,bnd->bn", asked, keys)
        share = li.softmax(score, 1)
        found = li.einsum("bn,bnd->bd", share, values)
        h, c = four_gates(h, c, li.dot(li.concat([x, h, found], 1), w), s.H)
        return (h, c), (h, share)

    (h, c), (ys, shares) = li.scan(cell, (s.h0(), s.h0("c0")), s.x, (q, w, v, keys, values))
    return {"h": h, "c": c, "ys": ys, "shares": shares}


@state
def attention(s: Loop) -> dict[str, li.Value]:
    return attended(s, 18, False)


@state
def additive_attention(s: Loop) -> dict[str, li.Value]:
    return attended(s, 5, True)


@state
def matrix_memory(s: Loop) -> dict[str, li.Value]:
    """mLSTM: C = f C + i v k^T, n = f n + i k, y = C q / max(|n q|, 1)."""
    n = 18
    q, k, v = s.input("q", s.T, s.B, n), s.input("k", s.T, s.B, n), s.input("v", s.T, s.B, s.H)
    f, i = s.input("f", s.T, s.B), s.input("i", s.T, s.B)

    def cell(state: Any, row: Any) -> Any:
        memory, norm = state
        q, k, v, f, i = row
        f, i, k = li.expand_dims(li.logistic(f), 1), li.expand_dims(li.exp(-li.abs(i)), 1), k * 0.2
        memory = li.expand_dims(f, 2) * memory + li.einsum("bv,bk->bvk", i * v, k)
        norm = f * norm + i * k
        size = li.maximum(li.abs(li.sum(norm * q, 1, keepdims=True)), 1.0)
        return (memory, norm), li.einsum("bvk,bk->bv", memory, q) / size

    (memory, norm), y = li.scan(cell, (s.input("c0", s.B, s.H, n), s.input("n0", s.B, n)), (q, k, v, f, i))
    return {"memory": memory, "norm": norm, "y": y}


@state
def delta_rule(s: Loop) -> dict[str, li.Value]:
    """S = a S + b (v - S k) k^T, y = S q, with heads."""
    n, d = 2, 17
    q, k, v = (s.input(name, s.T, s.B, n * d) for name in ("q", "k", "v"))
    a, b = s.input("a", s.T, s.B, n), s.input("b", s.T, s.B, n)

    def heads(v: Any) -> Any:
        return li.reshape(v, (v.shape[0], n, d))

    def cell(state: Any, row: Any) -> Any:
        q, k, v = (heads(r) for r in row[:3])
        a, b = (li.reshape(li.logistic(r), (r.shape[0], n, 1, 1)) for r in row[3:])
        k = k * li.rsqrt(li.sum(k * k, 2, keepdims=True) + 1e-3)
        error = v - li.einsum("bnvk,bnk->bnv", state, k)
        state = a * state + b * li.einsum("bnv,bnk->bnvk", error, k)
        return state, li.reshape(li.einsum("bnvk,bnk->bnv", state, q), (q.shape[0], n * d))

    last, y = li.scan(cell, s.input("s0", s.B, n, d, d), (q, k, v, a, b))
    return {"last": last, "y": y}


@state
def numbers_of_heads(s: Loop) -> dict[str, li.Value]:
    """A number for each head beside its matrix: carried, computed, and given back as it came."""
    n = 4
    d, v = s.input("d", s.T, s.B, n), s.input("v", s.T, s.B, n, s.H)

    def cell(state: Any, row: Any) -> Any:
        memory, norm = state
        d, v = row
        norm = norm * 0.5 + d
        memory = memory * li.expand_dims(li.logistic(d), 2) + v * li.expand_dims(norm, 2)
        return (memory, norm), (d, norm, li.sum(memory * v, 2))

    start = (s.input("s0", s.B, n, s.H), s.input("n0", s.B, n))
    (memory, norm), (same, norms, sums) = li.scan(cell, start, (d, v))
    return {"memory": memory, "norm": norm, "same": same, "norms": norms, "sums": sums}


@state
def rows_last(s: Loop) -> dict[str, li.Value]:
    """A state of columns by rows, its sums beside it, and a counter."""
    x, w = s.input("x", s.T, s.H, s.B), s.weight(s.H, s.H)

    def cell(state: Any, x: Any, w: Any) -> Any:
        h, total, count = state
        h = li.tanh(li.dot(w, h) + x * count)
        return (h, total * 0.5 + li.sum(h, 0), count * 0.5 + 0.25), (h, total)

    start = (s.input("h0", s.H, s.B), s.input("t0", s.B), s.input("n0"))
    (h, total, count), (ys, totals) = li.scan(cell, start, x, (w,))
    return {"h": h, "total": total, "count": count, "ys": ys, "totals": totals}


@state
def unlike_rows(s: Loop) -> dict[str, li.Value]:
    """States of other rows, that nothing joins, and one that a row of the other is read for."""
    x, u, w = s.input("x", s.T, s.B, s.H), s.input("u", s.T, 4, 6), s.weight(s.H, s.H)
    bias = s.input("b", s.T, s.H)

    def cell(state: Any, row: Any, w: Any) -> Any:
        h, other, mean = state
        x, u, b = row
        mean = mean * 0.5 + b
        h = li.tanh(li.dot(h, w) + x + li.broadcast_in_dim(mean, x.shape, (1,)))
        return (h, li.tanh(other * 0.5 + u), mean), (h, other)

    start = (s.h0(), s.input("o0", 4, 6), s.input("m0", s.H))
    (h, other, mean), (ys, others) = li.scan(cell, start, (x, u, bias), (w,))
    return {"h": h, "other": other, "mean": mean, "ys": ys, "others": others}


@state
def without_products(s: Loop) -> dict[str, li.Value]:
    """minGRU: no product reads a carry."""
    w, u = s.weight(s.H, s.I), s.weight(s.H, s.I)

    def cell(h: Any, x: Any, w: Any, u: Any) -> Any:
        z = li.logistic(li.dot_general(x, w, ((1,), (1,))))
        h = (1.0 - z) * h + z * li.dot_general(x, u, ((1,), (1,)))
        return h, h

    h, ys = li.scan(cell, s.h0(), s.x, (w, u))
    return {"h": h, "ys": ys}


def decoder(s: Loop, pick: Any, *more: li.Value) -> dict[str, li.Value]:
    """A cell that reads the token that was picked last; its logits beside it."""
    table, w, r, out = s.weight(13, s.I), s.weight(s.I, s.H), s.weight(s.H, s.H), s.weight(s.H, 13)

    def cell(state: Any, x: Any, *fixed: Any) -> Any:
        h, token = state
        table, w, r, out, *others, step = fixed
        h = li.tanh(li.dot(li.take(table, token, axis=0), w) + li.dot(h, r) + x)
        logits = li.dot(h, out) * 4.0
        token = li.argmax(logits + pick(logits.shape, step, *others), 1)
        return (h, token), (token, li.max(logits, 1))

    start = (s.h0(), s.input("token", s.B, dtype="i32"))
    (h, token), (tokens, top) = li.scan(
        cell, start, s.input("x", s.T, s.B, s.H), (table, w, r, out, *more), with_step=True
    )
    return {"h": h, "last": token, "tokens": tokens, "top": top}


@state
def generated(s: Loop) -> dict[str, li.Value]:
    """The likeliest token each time."""
    return decoder(s, lambda shape, step: li.full(shape, 0.0, s.dtype))


@state
def drawn(s: Loop) -> dict[str, li.Value]:
    """A token drawn by the counter-based generator."""
    key = s.input("key", 2, dtype="u32")

    def noise(shape: Any, step: Any, key: Any) -> Any:
        return li.random_gumbel(threefry.fold_in(key, li.convert(step, "i64")), shape, s.dtype)

    return decoder(s, noise, key)


def numpy_selective(a: dict[str, Any], decay: Any, first: bool) -> tuple[Any, Any]:
    """(y, last) of a selective scan by its equations, in f64."""
    v = {k: np.asarray(x, "f8") for k, x in a.items()}
    s, out = v["s0"].transpose(1, 2, 0) if first else v["s0"], []
    for x, d, b, c in zip(v["x"], v["d"], v["b"], v["c"], strict=True):
        d = 1 / (1 + np.exp(-d))
        s = np.exp(d[:, :, None] * decay) * s + (d * x)[:, :, None] * b[:, None, :]
        out.append((s * c[:, None, :]).sum(2))
    return np.array(out), s.transpose(2, 0, 1) if first else s


def numpy_delta(a: dict[str, Any], n: int, d: int) -> tuple[Any, Any]:
    """(y, last) of the delta rule, row by row and head by head, in f64."""
    v = {k: np.asarray(x, "f8") for k, x in a.items()}
    s, (T, B) = v["s0"].copy(), v["q"].shape[:2]
    y = np.zeros((T, B, n, d))
    for t in range(T):
        for b in range(B):
            for h in range(n):
                q, k, x = (v[name][t, b].reshape(n, d)[h] for name in ("q", "k", "v"))
                k = k / np.sqrt(k @ k + 1e-3)
                decay, rate = (1 / (1 + np.exp(-v[name][t, b, h])) for name in ("a", "b"))
                s[b, h] = decay * s[b, h] + rate * np.outer(x - s[b, h] @ k, k)
                y[t, b, h] = s[b, h] @ q
    return y.reshape(T, B, n * d), s


def numpy_memory(a: dict[str, Any]) -> Any:
    """y of the mLSTM's memory, row by row, in f64."""
    v = {k: np.asarray(x, "f8") for k, x in a.items()}
    T, B = v["f"].shape
    y = np.zeros(v["v"].shape)
    for b in range(B):
        c, n = v["c0"][b], v["n0"][b]
        for t in range(T):
            f, i, k = 1 / (1 + np.exp(-v["f"][t, b])), np.exp(-abs(v["i"][t, b])), v["k"][t, b] * 0.2
            c, n = f * c + i * np.outer(v["v"][t, b], k), f * n + i * k
            y[t, b] = c @ v["q"][t, b] / max(abs(n @ v["q"][t, b]), 1)
    return y

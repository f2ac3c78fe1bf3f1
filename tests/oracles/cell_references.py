"""The cells of examples/cells/ from their equations, once, for torch and for JAX: oracles of the tests and peers of the
benchmark.

    CELLS["min_gru"](library, {"x": x}, weights) -> y

`library` (cell_libraries.py) has the functions, and `scan(step, first, rows)` with `step(carry, row) -> (carry, y)`.
Each cell is written as users of these libraries do: what does not depend on the carry stands before the loop, sums over
an index are an einsum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cell_libraries import Library

Arrays = dict[str, Any]
HEADS = 4


def quarters(a: Any) -> tuple[Any, ...]:
    """Four equal parts of the last axis."""
    n = a.shape[-1] // 4
    return tuple(a[..., k * n : (k + 1) * n] for k in range(4))


def by_heads(a: Any) -> Any:
    """[T, B, H] -> [T, B, 4, H/4]."""
    return a.reshape(*a.shape[:-1], HEADS, a.shape[-1] // HEADS)


def softplus(l: Library, a: Any) -> Any:
    return l.np.logaddexp(a, a * 0)


def layer_norm_lstm(l: Library, given: Arrays, w: Arrays) -> Any:
    def norm(v: Any, scale: Any) -> Any:
        centred = v - l.np.mean(v, axis=-1, keepdims=True)
        return scale * centred / l.np.sqrt(l.np.mean(centred**2, axis=-1, keepdims=True) + 1e-5)

    def step(carry: Any, row: Any) -> Any:
        h, c = carry
        i, f, g, o = quarters(row + norm(h @ w["R"], w["beta"]))
        c = l.sigmoid(f) * c + l.sigmoid(i) * l.np.tanh(g)
        h = l.sigmoid(o) * l.np.tanh(norm(c, w["gamma"]))
        return (h, c), h

    x = given["x"]
    zero = l.zeros(x, (x.shape[1], w["gamma"].shape[0]))
    return l.scan(step, (zero, zero), norm(x @ w["W"], w["alpha"]) + w["b"])


def slstm(l: Library, given: Arrays, w: Arrays) -> Any:
    def step(carry: Any, row: Any) -> Any:
        h, c, n, m = carry
        i, f, z, o = quarters(row + l.np.einsum("bnd,nde->bne", h, w["R"]))
        log_f = -softplus(l, -f)
        new = l.np.maximum(log_f + m, i)
        keep, write = l.np.exp(log_f + m - new), l.np.exp(i - new)
        c = keep * c + write * l.np.tanh(z)
        n = keep * n + write
        h = l.sigmoid(o) * c / n
        return (h, c, n, new), h

    rows = by_heads(given["x"] @ w["W"] + w["b"])
    zero = l.zeros(rows, (*rows.shape[1:3], rows.shape[3] // 4))
    y = l.scan(step, (zero, zero, zero, zero), rows)
    return y.reshape(*y.shape[:2], -1)


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


def min_gru(l: Library, given: Arrays, w: Arrays) -> Any:
    def step(h: Any, row: Any) -> Any:
        z, c = row
        h = (1 - z) * h + z * c
        return h, h

    z, c = l.sigmoid(given["x"] @ w["W_z"] + w["b_z"]), given["x"] @ w["W_c"] + w["b_c"]
    return l.scan(step, l.zeros(z, z.shape[1:]), (z, c))


def lru(l: Library, given: Arrays, w: Arrays) -> Any:
    radius, angle = l.np.exp(-l.np.exp(w["nu"])), l.np.exp(w["theta"])
    re, im, gain = radius * l.np.cos(angle), radius * l.np.sin(angle), l.np.sqrt(1 - radius**2)

    def step(carry: Any, row: Any) -> Any:
        (a, b), (u, v) = carry, row
        new = (re * a - im * b + u, im * a + re * b + v)
        return new, new

    x = given["x"]
    zero = l.zeros(x, (x.shape[1], w["nu"].shape[0]))
    a, b = l.scan(step, (zero, zero), (x @ w["B_re"] * gain, x @ w["B_im"] * gain))
    return a @ w["C_re"] - b @ w["C_im"] + x @ w["D"]


def rg_lru(l: Library, given: Arrays, w: Arrays) -> Any:
    def step(h: Any, row: Any) -> Any:
        a, v = row
        h = a * h + v
        return h, h

    u = given["x"] @ w["W"] + w["b"]
    r, i = l.sigmoid(u @ w["W_r"] + w["b_r"]), l.sigmoid(u @ w["W_i"] + w["b_i"])
    log_a = -8 * softplus(l, w["Lambda"]) * r
    return l.scan(step, l.zeros(u, u.shape[1:]), (l.np.exp(log_a), l.np.sqrt(-l.np.expm1(2 * log_a)) * (i * u)))


def selective_scan(l: Library, given: Arrays, w: Arrays) -> Any:
    A = -l.np.exp(w["L"])

    def step(s: Any, row: Any) -> Any:
        u, dt, b, c = row
        s = l.np.exp(l.np.einsum("bd,dn->bdn", dt, A)) * s + l.np.einsum("bd,bn->bdn", dt * u, b)
        return s, l.np.einsum("bdn,bn->bd", s, c)

    u = given["x"] @ w["W_u"]
    dt = softplus(l, u @ w["W_dt"] @ w["V_dt"] + w["b_dt"])
    y = l.scan(step, l.zeros(u, (*u.shape[1:], A.shape[1])), (u, dt, u @ w["W_B"], u @ w["W_C"]))
    return y + w["D"] * u


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


def ind_rnn(l: Library, given: Arrays, w: Arrays) -> Any:
    def step(h: Any, row: Any) -> Any:
        h = l.relu(row + w["u"] * h)
        return h, h

    rows = given["x"] @ w["W"] + w["b"]
    return l.scan(step, l.zeros(rows, rows.shape[1:]), rows)


def cfc(l: Library, given: Arrays, w: Arrays) -> Any:
    x, I = given["x"], given["x"].shape[2]

    def step(h: Any, row: Any) -> Any:
        a, elapsed = row
        z = 1.7159 * l.np.tanh(2 / 3 * (a + h @ w["W"][I:]))
        gate = l.sigmoid(-(z @ w["W_f"] + w["b_f"]) * elapsed)
        h = gate * l.np.tanh(z @ w["W_g"] + w["b_g"]) + (1 - gate) * l.np.tanh(z @ w["W_k"] + w["b_k"])
        return h, h

    return l.scan(step, l.zeros(x, (x.shape[1], w["b"].shape[0])), (x @ w["W"][:I] + w["b"], given["elapsed"]))


def conv_lstm(l: Library, given: Arrays, w: Arrays) -> Any:
    x, C = given["x"], w["p_i"].shape[0]
    rows = l.conv3x3(x.reshape(-1, *x.shape[2:]), w["W"]) + w["b"][:, None, None]  # of all steps at once
    rows = rows.reshape(*x.shape[:2], *rows.shape[1:])

    def step(carry: Any, row: Any) -> Any:
        h, c = carry
        a = row + l.conv3x3(h, w["R"])
        i, f = l.sigmoid(a[:, :C] + w["p_i"] * c), l.sigmoid(a[:, C : 2 * C] + w["p_f"] * c)
        c = f * c + i * l.np.tanh(a[:, 2 * C : 3 * C])
        h = l.sigmoid(a[:, 3 * C :] + w["p_o"] * c) * l.np.tanh(c)
        return (h, c), h

    zero = l.zeros(x, (x.shape[1], *w["p_i"].shape))
    return l.scan(step, (zero, zero), rows)


def lif(l: Library, given: Arrays, w: Arrays) -> Any:
    beta = l.sigmoid(w["beta"])

    def step(carry: Any, row: Any) -> Any:
        u, s = carry
        u = beta * u + row - s  # the threshold is 1
        s = l.spike(u - 1, 25.0)
        return (u, s), s

    rows = given["x"] @ w["W"] + w["b"]
    zero = l.zeros(rows, rows.shape[1:])
    return l.scan(step, (zero, zero), rows)


def attention_lstm(l: Library, given: Arrays, w: Arrays) -> Any:
    x, memory, H = given["x"], given["memory"], w["R"].shape[0]
    keys, I = memory @ w["U_a"], given["x"].shape[2]

    def step(carry: Any, row: Any) -> Any:
        h, c = carry
        scores = (l.np.tanh((h @ w["W_a"])[:, None] + keys) @ w["v"])[..., 0]
        read = l.np.einsum("bs,bsh->bh", l.softmax(scores), memory)
        i, f, g, o = quarters(row + read @ w["W"][I:] + h @ w["R"])
        c = l.sigmoid(f) * c + l.sigmoid(i) * l.np.tanh(g)
        h = l.sigmoid(o) * l.np.tanh(c)
        return (h, c), h

    zero = l.zeros(x, (x.shape[1], H))
    return l.scan(step, (zero, zero), x @ w["W"][:I] + w["b"])


Cell = Callable[[Library, Arrays, Arrays], Any]
CELLS: dict[str, Cell] = {
    f.__name__: f
    for f in (
        layer_norm_lstm, slstm, mlstm, min_gru, lru, rg_lru, selective_scan, retnet, gated_delta, rwkv7, ind_rnn, cfc,
        conv_lstm, lif, attention_lstm,
    )
}  # fmt: skip

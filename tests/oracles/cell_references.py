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

from cell_libraries import Library, by_heads, softplus
from matrix_cell_references import gated_delta, mlstm, retnet, rwkv7

Arrays = dict[str, Any]


def quarters(a: Any) -> tuple[Any, ...]:
    """Four equal parts of the last axis."""
    n = a.shape[-1] // 4
    return tuple(a[..., k * n : (k + 1) * n] for k in range(4))


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


def min_gru(l: Library, given: Arrays, w: Arrays) -> Any:
    def step(h: Any, row: Any) -> Any:
        z, c = row
        h = (1 - z) * h + z * c
        return h, h

    z, c = l.sigmoid(given["x"] @ w["W_z"] + w["b_z"]), given["x"] @ w["W_c"] + w["b_c"]
    return l.scan(step, l.zeros(z, z.shape[1:]), (z, c))


def min_lstm(l: Library, given: Arrays, w: Arrays) -> Any:
    def step(h: Any, row: Any) -> Any:
        keep, c = row
        h = keep * h + (1 - keep) * c
        return h, h

    f, i, c = (given["x"] @ w[f"W_{k}"] + w[f"b_{k}"] for k in "fic")
    f, i = l.sigmoid(f), l.sigmoid(i)
    return l.scan(step, l.zeros(c, c.shape[1:]), (f / (f + i), c))


def qrnn(l: Library, given: Arrays, w: Arrays) -> Any:
    def step(c: Any, row: Any) -> Any:
        z, f, o = row
        c = f * c + (1 - f) * z
        return c, o * c

    x, H = given["x"], w["b"].shape[0] // 3
    pairs = l.np.concatenate([l.np.concatenate([l.zeros(x, (1, *x.shape[1:])), x[:-1]]), x], -1)  # of two steps
    u = pairs @ l.np.concatenate([w["V"], w["W"]]) + w["b"]
    z, f, o = l.np.tanh(u[..., :H]), l.sigmoid(u[..., H : 2 * H]), l.sigmoid(u[..., 2 * H :])
    return l.scan(step, l.zeros(x, (x.shape[1], H)), (z, f, o))


def sru(l: Library, given: Arrays, w: Arrays) -> Any:
    def step(c: Any, row: Any) -> Any:
        u, f, r, skip = row
        f, r = l.sigmoid(f + w["v_f"] * c), l.sigmoid(r + w["v_r"] * c)
        c = f * c + (1 - f) * u
        return c, r * c + (1 - r) * skip

    x = given["x"]
    rows = (x @ w["W"], x @ w["W_f"] + w["b_f"], x @ w["W_r"] + w["b_r"], x @ w["W_x"])
    return l.scan(step, l.zeros(x, (x.shape[1], w["b_f"].shape[0])), rows)


def s5(l: Library, given: Arrays, w: Arrays) -> Any:
    """In complex numbers."""
    eigenvalue = -l.np.exp(w["rho"]) + 1j * w["omega"]
    decay = l.np.exp(eigenvalue * l.np.exp(w["delta"]))

    def step(s: Any, row: Any) -> Any:
        s = decay * s + row
        return s, s

    x = given["x"]
    rows = ((x + 0j) @ (w["B_re"] + 1j * w["B_im"])) * ((decay - 1) / eigenvalue)
    states = l.scan(step, l.zeros(rows, rows.shape[1:]), rows)
    return 2 * (states @ (w["C_re"] + 1j * w["C_im"])).real + x @ w["D"]


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


def ltc(l: Library, given: Arrays, w: Arrays) -> Any:
    x = given["x"]

    def step(h: Any, seen: Any) -> Any:
        for _ in range(6):
            f = l.sigmoid(seen + h @ w["R"])
            h = (h + f * w["A"] / 6) / (1 + (1 / w["tau"] + f) / 6)
        return h, h

    return l.scan(step, l.zeros(x, (x.shape[1], w["b"].shape[0])), x @ w["W"] + w["b"])


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


def conv_gru(l: Library, given: Arrays, w: Arrays) -> Any:
    x, C = given["x"], w["R_h"].shape[0]
    rows = l.conv3x3(x.reshape(-1, *x.shape[2:]), w["W"]) + w["b"][:, None, None]  # of all steps at once
    rows = rows.reshape(*x.shape[:2], *rows.shape[1:])

    def step(h: Any, row: Any) -> Any:
        gates = l.sigmoid(row[:, : 2 * C] + l.conv3x3(h, w["R"]))
        z, r = gates[:, :C], gates[:, C:]
        h = h + z * (l.np.tanh(row[:, 2 * C :] + l.conv3x3(r * h, w["R_h"])) - h)
        return h, h

    return l.scan(step, l.zeros(x, (x.shape[1], C, *x.shape[3:])), rows)


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


def location_attention(l: Library, given: Arrays, w: Arrays) -> Any:
    x, memory, H = given["x"], given["memory"], w["R"].shape[0]
    keys, I = memory @ w["U_a"], given["x"].shape[2]

    def step(carry: Any, row: Any) -> Any:
        h, c, last = carry
        place = l.along_places(last, w["F"]) @ w["V_a"]
        last = l.softmax((l.np.tanh((h @ w["W_a"])[:, None] + keys + place) @ w["v"])[..., 0])
        i, f, g, o = quarters(row + l.np.einsum("bs,bsh->bh", last, memory) @ w["W"][I:] + h @ w["R"])
        c = l.sigmoid(f) * c + l.sigmoid(i) * l.np.tanh(g)
        h = l.sigmoid(o) * l.np.tanh(c)
        return (h, c, last), h

    zero, nowhere = l.zeros(x, (x.shape[1], H)), l.zeros(x, memory.shape[:2])
    return l.scan(step, (zero, zero, nowhere), x @ w["W"][:I] + w["b"])


Cell = Callable[[Library, Arrays, Arrays], Any]
CELLS: dict[str, Cell] = {
    f.__name__: f
    for f in (
        layer_norm_lstm, slstm, mlstm, min_gru, lru, rg_lru, selective_scan, retnet, gated_delta, rwkv7, ind_rnn, cfc,
        ltc, conv_lstm, lif, attention_lstm, min_lstm, qrnn, sru, s5, conv_gru, location_attention,
    )
}  # fmt: skip

"""The core recurrent ops in plain NumPy, one sequence and one step at a time, from the equations.

Nothing here is shared with the package. Real or complex numbers: a complex step, f(x + i e v) / e,
gives the derivative along v without rounding. Comparisons look at the real part.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Operands = Mapping[str, Any]
STEP = 1e-30


def sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


def _magnitude(x: Array) -> Array:
    return np.asarray(np.where(x.real < 0, -x, x))


def _between(x: Array, low: float, high: float) -> Array:
    return np.asarray(np.where(x.real < low, low, np.where(x.real > high, high, x)))


def activation(text: str) -> Callable[[Array], Array]:
    """The function written as `name` or `name(a,b)`, all parameters given."""
    name, _, rest = text.rstrip(")").partition("(")
    p = [float(v) for v in rest.split(",")] if rest else []
    table: dict[str, Callable[[Array], Array]] = {
        "sigmoid": sigmoid,
        "tanh": np.tanh,
        "relu": lambda x: np.where(x.real > 0, x, 0.0),
        "identity": lambda x: x,
        "softsign": lambda x: x / (1.0 + _magnitude(x)),
        "softplus": lambda x: np.log(1.0 + np.exp(x)),
        "affine": lambda x: p[0] * x + p[1],
        "hard_sigmoid": lambda x: _between(p[0] * x + p[1], 0.0, 1.0),
        "leaky_relu": lambda x: np.where(x.real > 0, x, p[0] * x),
        "elu": lambda x: np.where(x.real > 0, x, p[0] * (np.exp(np.where(x.real > 0, 0.0, x)) - 1.0)),
        "scaled_tanh": lambda x: p[0] * np.tanh(p[1] * x),
        "thresholded_relu": lambda x: np.where(x.real > p[0], x, 0.0),
    }
    return table[name]


def _clip(x: Array, limit: float, straight: bool = False) -> Array:
    if not limit > 0:
        return x
    if straight and np.iscomplexobj(x):
        return np.asarray(np.clip(x.real, -limit, limit) + 1j * x.imag)
    return _between(x, -limit, limit)


def lstm_step(z: Array, h: Array, c: Array, o: Operands, d: int, a: Operands) -> tuple[Array, Array, list[Array]]:
    """z = W x + b, already added; returns h, c and [gates, cell, activated cell]."""
    H = len(c)
    names = list(a["activations"])[5 * d : 5 * d + 5] or "sigmoid sigmoid tanh sigmoid tanh".split()
    act = [activation(n) for n in names]
    mask = 1.0 if o.get("recurrent_mask") is None else o["recurrent_mask"][d]
    z = z + o["w_hh"][d] @ (h * mask)
    z_i, z_f, z_g, z_o = z[:H], z[H : 2 * H], z[2 * H : 3 * H], z[3 * H :]
    z_f = z_f + a.get("forget_bias", 0.0)
    p = o.get("peephole")
    p_i = p_f = p_g = p_o = np.zeros(H)
    if p is not None:
        p_i, p_f = p[d][:H], p[d][H : 2 * H]
        p_o = p[d][-H:]
        p_g = p[d][2 * H : 3 * H] if len(p[d]) == 4 * H else np.zeros(H)
    limit = a.get("gate_clip", 0.0)
    i = act[0](_clip(z_i + p_i * c, limit))
    f = 1.0 - i if a.get("input_forget") else act[1](_clip(z_f + p_f * c, limit))
    g = act[2](_clip(z_g + p_g * c, limit))
    straight = a.get("clip_gradient") == "straight_through"
    new = _clip(f * c + i * g, a.get("cell_clip", 0.0), straight)
    seen = c if a.get("output_peephole") == "previous" else new
    out = act[3](_clip(z_o + p_o * seen, limit))
    k = act[4](new)
    m = out * k
    h = m if o.get("w_hr") is None else o["w_hr"][d] @ m
    return h, new, [np.concatenate([i, f, g, out]), new, k]


def gru_step(z: Array, h: Array, c: Array, o: Operands, d: int, a: Operands) -> tuple[Array, Array, list[Array]]:
    H = len(h)
    names = list(a["activations"])[3 * d : 3 * d + 3] or ["sigmoid", "sigmoid", "tanh"]
    f_r, f_z, f_n = (activation(n) for n in names)
    hm = h if o.get("recurrent_mask") is None else h * o["recurrent_mask"][d]
    R, limit = o["w_hh"][d], a.get("gate_clip", 0.0)
    r = f_r(_clip(z[:H] + R[:H] @ hm, limit))
    u = f_z(_clip(z[H : 2 * H] + R[H : 2 * H] @ hm, limit))
    saved = []
    if a.get("reset_after", True):
        k = R[2 * H :] @ hm + (0.0 if o.get("b_hn") is None else o["b_hn"][d])
        n, saved = f_n(_clip(z[2 * H :] + r * k, limit)), [k]
    else:
        n = f_n(_clip(z[2 * H :] + R[2 * H :] @ (r * hm), limit))
    new = (1.0 - u) * h + u * n if a.get("flip_z") else u * h + (1.0 - u) * n
    return new, c, [np.concatenate([r, u, n]), *saved]


def rnn_step(z: Array, h: Array, c: Array, o: Operands, d: int, a: Operands) -> tuple[Array, Array, list[Array]]:
    mask = 1.0 if o.get("recurrent_mask") is None else o["recurrent_mask"][d]
    z = z + o["w_hh"][d] @ (h * mask)
    f = activation((list(a["activations"]) or ["tanh", "tanh"])[d])
    return f(_clip(z, a.get("gate_clip", 0.0))), c, [z]


STEPS = {"lstm": (lstm_step, 4), "gru": (gru_step, 3), "rnn": (rnn_step, 1)}
SAVED = {"lstm": ["gates", "cells", "activated"], "gru": ["gates", "inner"], "rnn": ["pre"]}


def run(op: str, o: Operands, a: Operands) -> dict[str, Array]:
    """Every result of the op with save=True."""
    a = {"activations": (), **a}
    step, gates = STEPS[op]
    x = np.swapaxes(o["x"], 0, 1) if a.get("layout") == "batch" else o["x"]
    T, B = x.shape[:2]
    D, G, P = o["w_hh"].shape
    H = G // gates
    ways = {"forward": [1], "reverse": [-1], "bidirectional": [1, -1]}[a.get("direction", "forward")]
    kind = np.result_type(*(v for v in o.values() if v is not None and v.dtype.kind in "fc"))
    ends = np.full(B, T) if o.get("lengths") is None else np.array(o["lengths"])
    n = T if o.get("count") is None else int(o["count"])
    h_n, c_n = np.zeros((D, B, P), kind), np.zeros((D, B, H), kind)
    y = np.zeros((T, B, D, P), kind)
    saved: list[Array] = []
    for d, way in enumerate(ways):
        for b in range(B):
            h = np.zeros(P, kind) if o.get("h0") is None else o["h0"][d, b]
            c = np.zeros(H, kind) if o.get("c0") is None else o["c0"][d, b]
            row = dict(o)
            if o.get("recurrent_mask") is not None:
                row["recurrent_mask"] = o["recurrent_mask"][:, b]
            end = min(int(ends[b]), n)
            if a.get("padding") == "hold" and way < 0:
                y[:, b, d] = h
            for t in range(end)[::way]:
                if o.get("w_ih") is None:
                    z = x[t, b, d * G : (d + 1) * G]
                else:
                    z = o["w_ih"][d] @ x[t, b]
                if o.get("b") is not None:
                    z = z + o["b"][d]
                h, c, kept = step(z, h, c, row, d, a)
                y[t, b, d] = h
                if not saved:
                    saved = [np.zeros((T, B, D, len(k)), kind) for k in kept]
                for where, k in zip(saved, kept, strict=True):
                    where[t, b, d] = k
            if a.get("padding") == "hold" and way > 0:
                y[end:, b, d] = h
            h_n[d, b], c_n[d, b] = h, c
    if not saved:  # nothing exists
        widths = {"lstm": [G, H, H], "gru": [G, H][: 1 + a.get("reset_after", True)], "rnn": [H]}
        saved = [np.zeros((T, B, D, w), kind) for w in widths[op]]
    rows = {"y": y, **dict(zip(SAVED[op], saved, strict=False))}
    flat = {k: v.reshape(T, B, D * v.shape[3]) for k, v in rows.items()}
    if a.get("layout") == "batch":
        flat = {k: np.swapaxes(v, 0, 1) for k, v in flat.items()}
    return {**flat, "h_n": h_n, **({"c_n": c_n} if op == "lstm" else {})}


def slope(op: str, o: Operands, a: Operands, bars: Operands, name: str, direction: Array) -> float:
    """Derivative of sum(bar * result) when operand `name` moves along `direction`."""
    moved = {**o, name: o[name] + 1j * STEP * direction}
    results = run(op, moved, a)
    return float(sum((bars[k] * results[k]).sum().imag for k in bars) / STEP)

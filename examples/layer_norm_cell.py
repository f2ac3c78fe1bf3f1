"""A cell that no library has, written as a Python function and compiled: an LSTM with layer norm.

    a = LN(x W) + LN(h R) + b      i, f, g, o = split(a)
    c' = s(f) c + s(i) tanh(g)     h' = s(o) tanh(LN(c'))

LN(v) = (v - mean(v)) / sqrt(var(v) + 1e-5) * scale, over the columns of each row (Ba, Kiros and
Hinton 2016). `li.scan` runs the cell over time; T and B are open.

Run: python examples/layer_norm_cell.py
"""

import numpy as np

import lstm_ir as li

I, H, EPSILON = 5, 16, 1e-5
TOLERANCE = 2e-5
Arrays = dict[str, np.ndarray]


def normed(v: li.Value, scale: li.Value) -> li.Value:
    """Layer norm of each row of v [B, N]."""
    centred = v - li.mean(v, axis=1, keepdims=True)
    variance = li.mean(centred * centred, axis=1, keepdims=True)
    return centred * li.rsqrt(variance + EPSILON) * scale


def cell(
    carry: tuple[li.Value, li.Value], x: li.Value, w: dict[str, li.Value]
) -> tuple[tuple[li.Value, li.Value], li.Value]:
    """One step: x [B, I], h and c [B, H]."""
    h, c = carry
    a = normed(x @ w["W"], w["scale_x"]) + normed(h @ w["R"], w["scale_h"]) + w["b"]
    i, f, g, o = (a[:, k * H : (k + 1) * H] for k in range(4))
    c = li.logistic(f) * c + li.logistic(i) * li.tanh(g)
    h = li.logistic(o) * li.tanh(normed(c, w["scale_c"]))
    return (h, c), h


def graph(weights: Arrays) -> li.Graph:
    """x [T, B, I] -> y [T, B, H] and the last h and c."""
    w = {name: li.weight(f"norm_lstm/{name}", array) for name, array in weights.items()}
    x = li.input("x", ("T", "B", I))
    zero = li.zeros((x.shape[1], H))
    (h, c), y = li.scan(cell, init=(zero, zero), xs=x, consts=(w,))
    return li.Graph("norm_lstm", [x], {"y": y, "h": h, "c": c})


def plain(x: np.ndarray, weights: Arrays) -> Arrays:
    """The same in float64 NumPy, one row at a time."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    y = np.zeros((*x.shape[:2], H))
    last = np.zeros((2, x.shape[1], H))

    def norm(v: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return (v - v.mean()) / np.sqrt(v.var() + EPSILON) * scale

    def s(v: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-v))

    for b in range(x.shape[1]):
        h, c = np.zeros(H), np.zeros(H)
        for t, row in enumerate(x[:, b].astype(np.float64)):
            a = norm(row @ w["W"], w["scale_x"]) + norm(h @ w["R"], w["scale_h"]) + w["b"]
            i, f, g, o = np.split(a, 4)
            c = s(f) * c + s(i) * np.tanh(g)
            h = s(o) * np.tanh(norm(c, w["scale_c"]))
            y[t, b] = h
        last[:, b] = h, c
    return {"y": y, "h": last[0], "c": last[1]}


def main() -> None:
    rng = np.random.default_rng(29)
    shapes = {"W": (I, 4 * H), "R": (H, 4 * H), "b": (4 * H,)}
    weights = {k: (0.4 * rng.standard_normal(s)).astype(np.float32) for k, s in shapes.items()}
    for name, size in (("scale_x", 4 * H), ("scale_h", 4 * H), ("scale_c", H)):
        weights[name] = rng.uniform(0.5, 1.5, size).astype(np.float32)
    exe = li.compile(graph(weights))
    for T, B in ((1, 1), (11, 3), (40, 7)):
        x = rng.standard_normal((T, B, I)).astype(np.float32)
        out, want = exe(x=x), plain(x, weights)
        worst = max(float(np.abs(out[k] - want[k]).max()) for k in want)
        print(f"T {T}, B {B}: largest difference to float64 NumPy {worst:.1e}")
        assert worst < TOLERANCE


if __name__ == "__main__":
    main()

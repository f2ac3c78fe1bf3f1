"""mLSTM of xLSTM: a matrix as memory for each head, with exponential gates and a stabiliser m.

    q, k, v = x[t] W_q, x[t] W_k / sqrt(d), x[t] W_v    i, f = x[t] W_if + b_if    4 heads, d = H/4; i, f a number each
    m[t] = max(log σ(f) + m[t-1], i)     F = exp(log σ(f) + m[t-1] - m[t])     I = exp(i - m[t])
    C[t] = F C[t-1] + I v kᵀ             n[t] = F n[t-1] + I k
    h[t] = σ(x[t] W_o) ⊙ C[t] q / max(|n[t]ᵀ q|, exp(-m[t]))

Source: Beck et al., "xLSTM: Extended Long Short-Term Memory", 2024, arXiv 2405.04517, equations 19 to 27.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "mLSTM", "matrix state", "4 heads, a state [H/4, H/4] each"
HEADS = 4


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng, shapes = np.random.default_rng(seed), {f"W_{k}": (I, H) for k in "qkvo"} | {"W_if": (I, 2 * HEADS)}
    drawn = {k: rng.standard_normal(s) / np.sqrt(I) for k, s in shapes.items()}
    return drawn | {"b_if": np.concatenate([rng.uniform(-1, 1, HEADS), rng.uniform(1, 4, HEADS)])}


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I] -> the states of all steps [T, B, H]."""
    T, B, H = x.shape[0], x.shape[1], w["W_q"].shape[1]
    d, dtype = H // HEADS, str(x.dtype)

    def cell(carry: tuple[li.Value, ...], row: tuple[li.Value, ...]) -> tuple[tuple[li.Value, ...], li.Value]:
        (C, n, m), (q, k, v, i, f) = carry, row  # [B, head, d, d], [B, head, d], [B, head, 1]
        stable = li.maximum(f + m, i)
        keep, write = li.exp(f + m - stable), li.exp(i - stable)
        C = keep[..., None] * C + (write * v)[..., None] * k[..., None, :]
        n = keep * n + write * k
        size = li.maximum(li.abs(li.sum(n * q, 2, keepdims=True)), li.exp(-stable))
        return (C, n, stable), li.sum(C * q[..., None, :], 3) / size

    q, k, v = (li.reshape(x @ w[f"W_{p}"], (T, B, HEADS, d)) for p in "qkv")
    i, f = li.split(li.reshape(x @ w["W_if"] + w["b_if"], (T, B, 2 * HEADS, 1)), 2, 2)
    first = tuple(li.zeros((B, HEADS, *s), dtype) for s in ((d, d), (d,), (1,)))
    h = li.scan(cell, first, (q, k / d**0.5, v, i, li.log_sigmoid(f)))[1]
    return li.logistic(x @ w["W_o"]) * li.reshape(h, (T, B, H))


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I), dtype)
    return li.Graph("mlstm", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

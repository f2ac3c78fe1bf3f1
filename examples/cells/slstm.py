"""sLSTM of xLSTM: an LSTM with exponential gates, a normaliser n, a stabiliser m, and recurrent weights by heads.

    i, f, z, o = x[t] W + h[t-1] R + b      R has a block [H/4, 4 H/4] for each of 4 heads
    m[t] = max(log σ(f) + m[t-1], i)        F = exp(log σ(f) + m[t-1] - m[t])    I = exp(i - m[t])
    c[t] = F ⊙ c[t-1] + I ⊙ tanh(z)         n[t] = F ⊙ n[t-1] + I
    h[t] = σ(o) ⊙ c[t] / n[t]

Source: Beck et al., "xLSTM: Extended Long Short-Term Memory", 2024, arXiv 2405.04517, equations 8 to 18.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "sLSTM", "block-diagonal", "4 heads of H/4"
HEADS = 4


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng, D = np.random.default_rng(seed), H // HEADS
    shapes = {"W": (I, 4 * H), "R": (HEADS, D, 4 * D)}
    drawn = {k: rng.standard_normal(s) / np.sqrt(s[-2]) for k, s in shapes.items()}
    gates = rng.uniform(-1, 2, (HEADS, 2, 2 * D)) * [[1.0], [0.1]]  # those of i and f matter
    return drawn | {"b": gates.reshape(-1)}


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I] -> the states of all steps [T, B, H]; columns of W and b are [head][gate][H/4]."""
    T, B, H = x.shape[0], x.shape[1], w["W"].shape[1] // 4

    def cell(carry: tuple[li.Value, ...], row: li.Value) -> tuple[tuple[li.Value, ...], li.Value]:
        h, c, n, m = carry  # [B, head, H/4] each
        i, f, z, o = li.split(row + li.einsum("bnd,nde->bne", h, w["R"]), 4, 2)
        forget = li.log_sigmoid(f) + m
        m = li.maximum(forget, i)
        keep, write = li.exp(forget - m), li.exp(i - m)
        c, n = keep * c + write * li.tanh(z), keep * n + write
        h = li.logistic(o) * c / n
        return (h, c, n, m), h

    zero = li.zeros((B, HEADS, H // HEADS), str(x.dtype))
    rows = li.reshape(x @ w["W"] + w["b"], (T, B, HEADS, 4 * H // HEADS))
    return li.reshape(li.scan(cell, (zero,) * 4, rows)[1], (T, B, H))


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I), dtype)
    return li.Graph("slstm", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

"""LSTM with layer norm.

    a = LN(x[t] W; α) + LN(h[t-1] R; β) + b        i, f, g, o = the quarters of a
    c[t] = σ(f) ⊙ c[t-1] + σ(i) ⊙ tanh(g)
    h[t] = σ(o) ⊙ tanh(LN(c[t]; γ))
    LN(v; s) = s ⊙ (v - mean(v)) / sqrt(var(v) + 1e-5), over the columns of each row

Source: Ba, Kiros and Hinton, "Layer Normalization", 2016, arXiv 1607.06450, equations 20 to 22.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "LSTM with layer norm", "dense", "no heads"
Pair = tuple[li.Value, li.Value]


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    drawn = {"W": rng.standard_normal((I, 4 * H)) / np.sqrt(I), "R": rng.standard_normal((H, 4 * H)) / np.sqrt(H)}
    scales = {k: rng.uniform(0.5, 1.5, n) for k, n in (("alpha", 4 * H), ("beta", 4 * H), ("gamma", H))}
    scales["beta"] *= 0.3  # at 1 the layer is chaotic: f32 and f64 part within 200 steps
    return drawn | scales | {"b": 0.1 * rng.standard_normal(4 * H)}


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I] -> the states of all steps [T, B, H]."""
    H = w["gamma"].shape[0]

    def cell(carry: Pair, row: li.Value) -> tuple[Pair, li.Value]:
        h, c = carry
        a = li.layer_norm(row, w["alpha"]) + li.layer_norm(h @ w["R"], w["beta"]) + w["b"]
        i, f, g, o = li.split(a, 4, 1)
        c = li.logistic(f) * c + li.logistic(i) * li.tanh(g)
        h = li.logistic(o) * li.tanh(li.layer_norm(c, w["gamma"]))
        return (h, c), h

    zero = li.zeros((x.shape[1], H), str(x.dtype))
    return li.scan(cell, (zero, zero), x @ w["W"])[1]


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I), dtype)
    return li.Graph("layer_norm_lstm", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

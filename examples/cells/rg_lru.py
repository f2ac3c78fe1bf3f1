"""RG-LRU of Griffin: a real diagonal whose decay the input gates.

    u[t] = x[t] W + b       r[t] = σ(u[t] W_r + b_r)       i[t] = σ(u[t] W_i + b_i)
    a[t] = exp(-8 softplus(Λ) ⊙ r[t])
    h[t] = a[t] ⊙ h[t-1] + sqrt(1 - a[t]²) ⊙ i[t] ⊙ u[t]

Source: De et al., "Griffin: Mixing Gated Linear Recurrences with Local Attention for Efficient Language Models", 2024,
arXiv 2402.19427, equations 1 to 4; u is the linear layer before it.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "RG-LRU", "elementwise linear", "no heads"
Pair = tuple[li.Value, li.Value]


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    drawn = {k: rng.standard_normal((n, H)) / np.sqrt(n) for k, n in (("W", I), ("W_r", H), ("W_i", H))}
    drawn |= {k: 0.1 * rng.standard_normal(H) for k in ("b", "b_r", "b_i")}
    return drawn | {"Lambda": np.log(np.expm1(-np.log(rng.uniform(0.9, 0.999, H)) / 8))}  # decays at r = 1


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I] -> the states of all steps [T, B, H]."""

    def cell(h: li.Value, row: Pair) -> tuple[li.Value, li.Value]:
        a, v = row
        h = a * h + v
        return h, h

    u = x @ w["W"] + w["b"]
    r, i = li.logistic(u @ w["W_r"] + w["b_r"]), li.logistic(u @ w["W_i"] + w["b_i"])
    log_a = -8.0 * li.softplus(w["Lambda"]) * r
    rows = li.exp(log_a), li.sqrt(-li.expm1(2.0 * log_a)) * i * u  # sqrt(1 - a²), exact where a is near 1
    return li.scan(cell, li.zeros(u.shape[1:], str(x.dtype)), rows)[1]


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I), dtype)
    return li.Graph("rg_lru", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

"""Gated delta rule: a matrix as memory for each head, which forgets and then corrects what it holds for a key.

    q, k, v = x[t] W_q, x[t] W_k, x[t] W_v       4 heads of d = H/4 columns; q and k divided by their norms
    α = exp(-exp(A) softplus(x[t] W_α + b_α))    β = σ(x[t] W_β)        one number for each head
    S[t] = α S[t-1] (1 - β k kᵀ) + β v kᵀ        y[t] = S[t] q / sqrt(d)

Source: Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024, arXiv 2412.06464,
equation 10, with α as in Mamba-2; the short convolution, the norm and the gate around it are left out.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "Gated delta rule", "matrix state", "4 heads, a state [H/4, H/4] each"
HEADS = 4


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"W_q": (I, H), "W_k": (I, H), "W_v": (I, H), "W_alpha": (I, HEADS), "W_beta": (I, HEADS)}
    drawn = {k: rng.standard_normal(s) / np.sqrt(I) for k, s in shapes.items()}
    return drawn | {"b_alpha": rng.uniform(-5, -2, HEADS), "A": np.log(rng.uniform(1, 16, HEADS))}


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I] -> y of all steps [T, B, H]."""
    T, B, H = x.shape[0], x.shape[1], w["W_q"].shape[1]
    heads, dtype = (T, B, HEADS, H // HEADS), str(x.dtype)

    def cell(S: li.Value, row: tuple[li.Value, ...]) -> tuple[li.Value, li.Value]:
        q, k, v, alpha, beta = row  # [B, head, d], or [B, head, 1]; S [B, head, d, d]
        S = alpha[..., None] * S
        held = li.sum(S * k[..., None, :], 3)
        S = S + (beta * (v - held))[..., None] * k[..., None, :]
        return S, li.sum(S * q[..., None, :], 3)

    q, k, v = (li.reshape(x @ w[f"W_{p}"], heads) for p in "qkv")
    q, k = (u * li.rsqrt(li.sum(u * u, 3, keepdims=True) + 1e-6) for u in (q, k))
    alpha = li.exp(-li.exp(w["A"]) * li.softplus(x @ w["W_alpha"] + w["b_alpha"]))
    rows = (q / heads[3] ** 0.5, k, v, alpha[..., None], li.logistic(x @ w["W_beta"])[..., None])
    return li.reshape(li.scan(cell, li.zeros((*heads[1:], heads[3]), dtype), rows)[1], (T, B, H))


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I), dtype)
    return li.Graph("gated_delta", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

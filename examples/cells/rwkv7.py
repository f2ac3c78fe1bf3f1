"""RWKV-7: a matrix as memory for each head, with a decay and a rate of the delta rule for each column.

    r, k, v = x[t] W_r, x[t] W_k, x[t] W_v        w = exp(-exp(-1/2) σ(tanh(x[t] W_w) V_w + b_w))
    a = σ(x[t] W_a V_a + b_a)                     4 heads of d = H/4 columns
    κ = k ⊙ ξ divided by its norm                 k' = k ⊙ (1 + (a - 1) ⊙ α)
    S[t] = S[t-1] (diag(w) - κ (a ⊙ κ)ᵀ) + v k'ᵀ    y[t] = S[t] r

Source: Peng et al., "RWKV-7 'Goose' with Expressive Dynamic State Evolution", 2025, arXiv 2503.14456, section 4.1; the
shift of tokens, the bonus, the norm and the gate stand outside the recurrence, and are left out.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "RWKV-7", "matrix state", "4 heads, a state [H/4, H/4] each; w and a of rank H/8"
HEADS = 4


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng, rank = np.random.default_rng(seed), max(H // 8, 1)
    shapes = {f"W_{k}": (I, rank if k in "wa" else H) for k in "rkvwa"} | {f"V_{k}": (rank, H) for k in "wa"}
    drawn = {k: rng.standard_normal(s) / np.sqrt(s[0]) for k, s in shapes.items()}
    return drawn | {k: rng.uniform(n, 1, H) for k, n in (("b_w", -6), ("b_a", -1), ("xi", 0.5), ("alpha", 0))}


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I] -> y of all steps [T, B, H]."""
    heads = (*x.shape[:2], HEADS, w["b_w"].shape[0] // HEADS)

    def cell(S: li.Value, row: tuple[li.Value, ...]) -> tuple[li.Value, li.Value]:
        r, v, decay, key, unit, rate = (v[..., None, :] for v in row)  # [B, head, 1, d]; S [B, head, d, d]
        S = decay * S - li.sum(S * unit, 3, keepdims=True) * (rate * unit) + li.swapaxes(v, 2, 3) * key
        return S, li.sum(S * r, 3)

    r, k, v = (x @ w[f"W_{p}"] for p in "rkv")
    decay = li.exp(-float(np.exp(-0.5)) * li.logistic(li.tanh(x @ w["W_w"]) @ w["V_w"] + w["b_w"]))
    rate = li.logistic(x @ w["W_a"] @ w["V_a"] + w["b_a"])
    rows = (r, v, decay, k * (1.0 + (rate - 1.0) * w["alpha"]), k * w["xi"], rate)
    r, v, decay, key, unit, rate = (li.reshape(row, heads) for row in rows)
    unit = unit * li.rsqrt(li.sum(unit * unit, 3, keepdims=True) + 1e-12)
    first = li.zeros((*heads[1:], heads[3]), str(x.dtype))
    return li.reshape(li.scan(cell, first, (r, v, decay, key, unit, rate))[1], k.shape)


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I), dtype)
    return li.Graph("rwkv7", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

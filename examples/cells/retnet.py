"""RetNet, its retention in recurrent form: a matrix as memory for each head, with a decay that is a constant.

    q, k, v = x[t] W_q, x[t] W_k / sqrt(d), x[t] W_v       4 heads of d = H/4 columns
    S[t] = γ S[t-1] + k vᵀ                                 γ = 1 - 2^(-5 - head)
    y[t] = S[t]ᵀ q

Source: Sun et al., "Retentive Network: A Successor to Transformer for Large Language Models", 2023, arXiv 2307.08621,
equation 6; the rotation of q and k by their positions, the norm and the gate stand outside the recurrence, and are left
out.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "RetNet", "matrix state", "4 heads, a state [H/4, H/4] each"
HEADS = 4


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {k: rng.standard_normal((I, H)) / np.sqrt(I) for k in ("W_q", "W_k", "W_v")}


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I] -> y of all steps [T, B, H]."""
    T, B, H = x.shape[0], x.shape[1], w["W_q"].shape[1]
    d, dtype = H // HEADS, str(x.dtype)
    decay = li.constant((1 - 2.0 ** (-5 - np.arange(HEADS))).reshape(HEADS, 1, 1), dtype)

    def cell(S: li.Value, row: tuple[li.Value, ...]) -> tuple[li.Value, li.Value]:
        q, k, v = row  # [B, head, d]; S [B, head, d, d]
        S = decay * S + k[..., None] * v[..., None, :]
        return S, li.sum(S * q[..., None], 2)

    q, k, v = (li.reshape(x @ w[f"W_{p}"], (T, B, HEADS, d)) for p in "qkv")
    y = li.scan(cell, li.zeros((B, HEADS, d, d), dtype), (q, k / d**0.5, v))[1]
    return li.reshape(y, (T, B, H))


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I), dtype)
    return li.Graph("retnet", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

"""Selective scan of Mamba (S6): N states for each channel, whose step, input and output depend on x.

    u[t] = x[t] W_u       Δ[t] = softplus(u[t] W_Δ V_Δ + b_Δ)       B[t], C[t] = u[t] W_B, u[t] W_C
    s[t, d, n] = exp(Δ[t, d] A[d, n]) s[t-1, d, n] + Δ[t, d] B[t, n] u[t, d]
    y[t, d] = Σ_n C[t, n] s[t, d, n] + D[d] u[t, d]             A = -exp(L), n = 1 … 16

Source: Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023, arXiv 2312.00752,
algorithm 2, discretised as in its code; u is the linear layer before it.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "Selective scan of Mamba", "elementwise linear", "H channels of 16 states, Δ of rank H/16"
N = 16


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng, rank = np.random.default_rng(seed), max(H // 16, 1)
    shapes = {"W_u": (I, H), "W_dt": (H, rank), "V_dt": (rank, H), "W_B": (H, N), "W_C": (H, N)}
    drawn = {k: rng.standard_normal(s) / np.sqrt(s[0]) for k, s in shapes.items()}
    steps = np.exp(rng.uniform(np.log(0.001), np.log(0.1), H))  # Δ where x is zero
    return drawn | {
        "b_dt": np.log(np.expm1(steps)),
        "L": np.tile(np.log(np.arange(1.0, N + 1)), (H, 1)),
        "D": np.ones(H),
    }


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I] -> y of all steps [T, B, H]."""
    A = -li.exp(w["L"])

    def cell(s: li.Value, row: tuple[li.Value, ...]) -> tuple[li.Value, li.Value]:
        u, dt, b, c = row  # s [B, H, N], u and dt [B, H], b and c [B, N]
        s = li.exp(dt[..., None] * A) * s + (dt * u)[..., None] * b[:, None]
        return s, li.sum(s * c[:, None], 2)

    u = x @ w["W_u"]
    dt = li.softplus(u @ w["W_dt"] @ w["V_dt"] + w["b_dt"])
    first = li.zeros((*u.shape[1:], N), str(x.dtype))
    return li.scan(cell, first, (u, dt, u @ w["W_B"], u @ w["W_C"]))[1] + w["D"] * u


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I), dtype)
    return li.Graph("selective_scan", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

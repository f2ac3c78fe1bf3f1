"""S5: a state space with a complex diagonal, discretised by zero-order hold, kept as pairs of real numbers.

    λ = -exp(ρ) + i ω        Λ = exp(λ Δ)        Δ = exp(δ)        H states, each with its conjugate
    s[t] = Λ ⊙ s[t-1] + (Λ - 1) / λ ⊙ (x[t] B)        B complex [I, H]
    y[t] = 2 Re(s[t] C) + x[t] D                      C complex [H, H], D real [I, H]

Source: Smith, Warrington and Linderman, "Simplified State Space Layers for Sequence Modeling", 2022, arXiv 2208.04933,
equations 2 and 6, and appendix B.1.4; D is a matrix here, since x need not have as many columns as y.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "S5", "elementwise linear", "H complex states, a step Δ for each"
Pair = tuple[li.Value, li.Value]


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    drawn = {f"B_{k}": rng.standard_normal((I, H)) / np.sqrt(2 * I) for k in ("re", "im")}
    drawn |= {f"C_{k}": rng.standard_normal((H, H)) / np.sqrt(2 * H) for k in ("re", "im")}
    drawn |= {"rho": np.full(H, np.log(0.5)), "omega": np.pi * (np.arange(H) + 0.5)}  # near those of HiPPO-N
    return drawn | {"delta": rng.uniform(np.log(0.001), np.log(0.1), H), "D": rng.standard_normal((I, H)) / np.sqrt(I)}


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I] -> y of all steps [T, B, H]."""
    rate, omega, step = li.exp(w["rho"]), w["omega"], li.exp(w["delta"])  # λ = -rate + i omega
    radius, angle = li.exp(-rate * step), omega * step
    re, im, half = radius * li.cos(angle), radius * li.sin(angle), li.sin(0.5 * angle)
    less = 2.0 * half * half - li.expm1(-rate * step) * li.cos(angle)  # 1 - re, exact where Δ is small
    size = rate * rate + omega * omega
    gain_re, gain_im = (less * rate + im * omega) / size, (less * omega - im * rate) / size  # (Λ - 1) / λ

    def cell(carry: Pair, row: Pair) -> tuple[Pair, Pair]:
        (a, b), (u, v) = carry, row
        pair = re * a - im * b + u, re * b + im * a + v
        return pair, pair

    u, v, zero = x @ w["B_re"], x @ w["B_im"], li.zeros((x.shape[1], rate.shape[0]), str(x.dtype))
    a, b = li.scan(cell, (zero, zero), (gain_re * u - gain_im * v, gain_re * v + gain_im * u))[1]
    return 2.0 * (a @ w["C_re"] - b @ w["C_im"]) + x @ w["D"]


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I), dtype)
    return li.Graph("s5", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

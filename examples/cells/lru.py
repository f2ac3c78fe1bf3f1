"""LRU: a linear recurrent unit with a complex diagonal, kept as pairs of real numbers.

    λ = exp(-exp(ν) + i exp(θ))       γ = sqrt(1 - |λ|²)       H states
    s[t] = λ ⊙ s[t-1] + γ ⊙ (x[t] B)         B complex [I, H]
    y[t] = Re(s[t] C) + D x[t]               C complex [H, H], D real [I, H]

Source: Orvieto et al., "Resurrecting Recurrent Neural Networks for Long Sequences", 2023, arXiv 2303.06349, equation 6
and section 3.4; D is a matrix here, since x need not have as many columns as y.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "LRU", "elementwise linear", "H complex states"
Pair = tuple[li.Value, li.Value]


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    drawn = {f"B_{k}": rng.standard_normal((I, H)) / np.sqrt(2 * I) for k in ("re", "im")}
    drawn |= {f"C_{k}": rng.standard_normal((H, H)) / np.sqrt(H) for k in ("re", "im")}
    radius, angle = np.sqrt(rng.uniform(0.4**2, 0.99**2, H)), rng.uniform(0.01, 0.6, H)
    return drawn | {
        "D": rng.standard_normal((I, H)) / np.sqrt(I),
        "nu": np.log(-np.log(radius)),
        "theta": np.log(angle),
    }


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I] -> y of all steps [T, B, H]."""
    radius, angle = li.exp(-li.exp(w["nu"])), li.exp(w["theta"])
    re, im, gain = radius * li.cos(angle), radius * li.sin(angle), li.sqrt(1.0 - radius * radius)

    def cell(carry: Pair, row: Pair) -> tuple[Pair, Pair]:
        (a, b), (u, v) = carry, row
        pair = re * a - im * b + u, re * b + im * a + v
        return pair, pair

    zero = li.zeros((x.shape[1], w["nu"].shape[0]), str(x.dtype))
    a, b = li.scan(cell, (zero, zero), (gain * (x @ w["B_re"]), gain * (x @ w["B_im"])))[1]
    return a @ w["C_re"] - b @ w["C_im"] + x @ w["D"]


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I), dtype)
    return li.Graph("lru", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

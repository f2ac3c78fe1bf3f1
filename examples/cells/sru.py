"""SRU: a state whose gates read the same element of the last state alone, with a highway around it.

    f[t] = σ(x[t] W_f + v_f ⊙ c[t-1] + b_f)        r[t] = σ(x[t] W_r + v_r ⊙ c[t-1] + b_r)
    c[t] = f[t] ⊙ c[t-1] + (1 - f[t]) ⊙ (x[t] W)
    h[t] = r[t] ⊙ c[t] + (1 - r[t]) ⊙ (x[t] W_x)

Source: Lei, Zhang, Wang, Dai and Artzi, "Simple Recurrent Units for Highly Parallelizable Recurrence", 2018, arXiv
1709.02755, section 2; W_x, since x need not have as many columns as h, stands for the scale α of x, as in its code.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "SRU", "elementwise nonlinear", "no heads"


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    drawn = {k: rng.standard_normal((I, H)) / np.sqrt(I) for k in ("W", "W_f", "W_r", "W_x")}
    drawn |= {k: rng.uniform(-1, 1, H) for k in ("v_f", "v_r")}
    return drawn | {"b_f": rng.uniform(0, 2, H), "b_r": 0.1 * rng.standard_normal(H)}


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I] -> the states of all steps [T, B, H]."""

    def cell(c: li.Value, row: tuple[li.Value, ...]) -> tuple[li.Value, li.Value]:
        u, f, r, skip = row
        f, r = li.logistic(f + w["v_f"] * c), li.logistic(r + w["v_r"] * c)
        c = f * c + (1.0 - f) * u
        return c, r * c + (1.0 - r) * skip

    rows = (x @ w["W"], x @ w["W_f"] + w["b_f"], x @ w["W_r"] + w["b_r"], x @ w["W_x"])
    return li.scan(cell, li.zeros(rows[0].shape[1:], str(x.dtype)), rows)[1]


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I), dtype)
    return li.Graph("sru", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

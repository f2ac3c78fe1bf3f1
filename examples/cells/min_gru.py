"""minGRU: a GRU whose gates do not read the state.

    z[t] = σ(x[t] W_z + b_z)        c[t] = x[t] W_c + b_c
    h[t] = (1 - z[t]) ⊙ h[t-1] + z[t] ⊙ c[t]

Source: Feng, Tung, Ahmed, Bengio and Hajimirsadegh, "Were RNNs All We Needed?", 2024, arXiv 2410.01201, section 3.1.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "minGRU", "elementwise linear", "no heads"


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    drawn = {k: rng.standard_normal((I, H)) / np.sqrt(I) for k in ("W_z", "W_c")}
    return drawn | {"b_z": rng.uniform(-2, 0, H), "b_c": 0.1 * rng.standard_normal(H)}


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I] -> the states of all steps [T, B, H]."""

    def cell(h: li.Value, row: tuple[li.Value, li.Value]) -> tuple[li.Value, li.Value]:
        z, c = row
        h = (1.0 - z) * h + z * c
        return h, h

    z, c = li.logistic(x @ w["W_z"] + w["b_z"]), x @ w["W_c"] + w["b_c"]
    return li.scan(cell, li.zeros(z.shape[1:], str(x.dtype)), (z, c))[1]


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I), dtype)
    return li.Graph("min_gru", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

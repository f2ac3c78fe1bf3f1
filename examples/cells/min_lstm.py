"""minLSTM: an LSTM whose gates do not read the state, and sum to 1.

    f[t] = σ(x[t] W_f + b_f)        i[t] = σ(x[t] W_i + b_i)        c[t] = x[t] W_c + b_c
    h[t] = f[t] / (f[t] + i[t]) ⊙ h[t-1] + i[t] / (f[t] + i[t]) ⊙ c[t]

Source: Feng, Tung, Ahmed, Bengio and Hajimirsadegh, "Were RNNs All We Needed?", 2024, arXiv 2410.01201, section 3.2.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "minLSTM", "elementwise linear", "no heads"


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    drawn = {k: rng.standard_normal((I, H)) / np.sqrt(I) for k in ("W_f", "W_i", "W_c")}
    return drawn | {"b_f": rng.uniform(0, 2, H), "b_i": rng.uniform(-1, 1, H), "b_c": 0.1 * rng.standard_normal(H)}


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I] -> the states of all steps [T, B, H]."""

    def cell(h: li.Value, row: tuple[li.Value, ...]) -> tuple[li.Value, li.Value]:
        f, i, c = row
        h = (f * h + i * c) / (f + i)
        return h, h

    f, i = (li.logistic(x @ w[f"W_{k}"] + w[f"b_{k}"]) for k in "fi")
    return li.scan(cell, li.zeros(f.shape[1:], str(x.dtype)), (f, i, x @ w["W_c"] + w["b_c"]))[1]


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I), dtype)
    return li.Graph("min_lstm", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

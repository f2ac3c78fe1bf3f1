"""IndRNN: each unit reads its own state alone.

    h[t] = relu(x[t] W + u ⊙ h[t-1] + b)

Source: Li, Li, Cook, Zhu and Gao, "Independently Recurrent Neural Network (IndRNN)", 2018, arXiv 1803.04831, equation
2.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "IndRNN", "elementwise nonlinear", "no heads"


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "W": rng.standard_normal((I, H)) / np.sqrt(I),
        "u": rng.uniform(-1, 1, H),
        "b": 0.1 * rng.standard_normal(H),
    }


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I] -> the states of all steps [T, B, H]."""

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        h = li.relu(row + w["u"] * h)
        return h, h

    rows = x @ w["W"] + w["b"]
    return li.scan(cell, li.zeros(rows.shape[1:], str(x.dtype)), rows)[1]


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I), dtype)
    return li.Graph("ind_rnn", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

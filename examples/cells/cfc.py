"""CfC: a liquid time-constant network in closed form, for steps that are not equally long.

    z = 1.7159 tanh(2/3 ([x[t], h[t-1]] W + b))              the backbone
    f, g, k = z W_f + b_f, tanh(z W_g + b_g), tanh(z W_k + b_k)
    h[t] = σ(-f Δ[t]) ⊙ g + (1 - σ(-f Δ[t])) ⊙ k             Δ: the time since the last step

Source: Hasani et al., "Closed-form continuous-time neural networks", Nature Machine Intelligence 4, 2022, equation 10;
the backbone is one layer of H units with the activation of the authors' code.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "CfC", "dense", "a backbone of H units"


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    drawn = {k: rng.standard_normal((H, H)) / np.sqrt(H) for k in ("W_f", "W_g", "W_k")}
    drawn |= {k: 0.1 * rng.standard_normal(H) for k in ("b", "b_f", "b_g", "b_k")}
    return drawn | {"W": rng.standard_normal((I + H, H)) / np.sqrt(I + H)}


def layer(x: li.Value, elapsed: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I], elapsed [T, B, 1] -> the states of all steps [T, B, H]."""

    def cell(h: li.Value, row: tuple[li.Value, li.Value]) -> tuple[li.Value, li.Value]:
        x, elapsed = row
        z = 1.7159 * li.tanh(2.0 / 3.0 * (li.concat([x, h], 1) @ w["W"] + w["b"]))
        first = li.logistic(-(z @ w["W_f"] + w["b_f"]) * elapsed)
        h = first * li.tanh(z @ w["W_g"] + w["b_g"]) + (1.0 - first) * li.tanh(z @ w["W_k"] + w["b_k"])
        return h, h

    return li.scan(cell, li.zeros((x.shape[1], w["b"].shape[0]), str(x.dtype)), (x, elapsed))[1]


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x, elapsed = li.input("x", (T, B, I), dtype), li.input("elapsed", (T, B, 1), dtype)
    return li.Graph("cfc", [x, elapsed], {"y": layer(x, elapsed, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe, elapsed = li.compile(graph), np.abs(x[..., :1])
    worst = np.abs(exe(x=x, elapsed=elapsed)["y"] - li.interpret(graph, x=x, elapsed=elapsed)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

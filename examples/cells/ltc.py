"""LTC: a liquid time-constant network, whose differential equation each step solves by six small steps.

    dh/dt = -h / τ + f (A - h),  f = σ(x[t] W + h R + b)
    h <- (h + δ f A) / (1 + δ (1/τ + f))                     six times, δ = 1/6: Euler's method, half implicit

Source: Hasani et al., "Liquid time-constant networks", AAAI, 2021, equation 1 and algorithm 1 (the fused solver).
The inner loop is written out where the cell is compiled or differentiated, so that the outer one is a kernel.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "LTC", "dense", "six steps of the solver"
STEPS = 6


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    drawn = {"W": rng.standard_normal((I, H)) / np.sqrt(I), "R": rng.standard_normal((H, H)) / np.sqrt(H)}
    return drawn | {"b": 0.1 * rng.standard_normal(H), "A": rng.standard_normal(H), "tau": rng.uniform(0.5, 2.0, H)}


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I] -> the states of all steps [T, B, H]."""

    def solve(h: li.Value, _: None, seen: li.Value) -> tuple[li.Value, None]:
        f = li.logistic(seen + h @ w["R"] + w["b"])
        return (h + f * w["A"] / STEPS) / (1.0 + (1.0 / w["tau"] + f) / STEPS), None

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        h, _ = li.scan(solve, h, None, (row @ w["W"],), length=STEPS)
        return h, h

    return li.scan(cell, li.zeros((x.shape[1], w["b"].shape[0]), str(x.dtype)), x)[1]


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I), dtype)
    return li.Graph("ltc", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

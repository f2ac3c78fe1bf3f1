"""QRNN: gates from a convolution over two steps of the input, pooled by a state that forgets (fo-pooling).

    z[t], f[t], o[t] = tanh(u), σ(u), σ(u), the thirds of u = x[t-1] V + x[t] W + b        x[-1] = 0
    c[t] = f[t] ⊙ c[t-1] + (1 - f[t]) ⊙ z[t]
    h[t] = o[t] ⊙ c[t]

Source: Bradbury, Merity, Xiong and Socher, "Quasi-Recurrent Neural Networks", 2016, arXiv 1611.01576, equations 2
and 4, with biases, as in the authors' code.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "QRNN", "elementwise linear", "a convolution over 2 steps"


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    drawn = {k: rng.standard_normal((I, 3 * H)) / np.sqrt(2 * I) for k in "VW"}
    return drawn | {"b": np.concatenate([0.1 * rng.standard_normal(H), rng.uniform(0, 2, H), rng.uniform(-1, 1, H)])}


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I] -> the states of all steps [T, B, H]."""

    def cell(c: li.Value, row: tuple[li.Value, ...]) -> tuple[li.Value, li.Value]:
        z, f, o = row
        c = f * c + (1.0 - f) * z
        return c, o * c

    before = li.concat([li.zeros((1, *x.shape[1:]), str(x.dtype)), x], 0)[: x.shape[0]]
    z, f, o = li.split(before @ w["V"] + x @ w["W"] + w["b"], 3, 2)
    first = li.zeros(z.shape[1:], str(x.dtype))
    return li.scan(cell, first, (li.tanh(z), li.logistic(f), li.logistic(o)))[1]


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I), dtype)
    return li.Graph("qrnn", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

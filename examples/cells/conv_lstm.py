"""ConvLSTM: an LSTM over planes, whose products are convolutions of 3 x 3, with peepholes.

    i = σ(x[t] * W_i + h[t-1] * R_i + p_i ⊙ c[t-1] + b_i)       f likewise
    c[t] = f ⊙ c[t-1] + i ⊙ tanh(x[t] * W_g + h[t-1] * R_g + b_g)
    o = σ(x[t] * W_o + h[t-1] * R_o + p_o ⊙ c[t] + b_o)
    h[t] = o ⊙ tanh(c[t])

Source: Shi et al., "Convolutional LSTM Network: A Machine Learning Approach for Precipitation Nowcasting", 2015, arXiv
1506.04214, equation 3.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "ConvLSTM", "convolution", "x of I/8 and h of H/8 channels, planes of 8 x 8"
SIDE = 8
Pair = tuple[li.Value, li.Value]


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng, C = np.random.default_rng(seed), H // 8
    shapes = {"W": (4 * C, I // 8, 3, 3), "R": (4 * C, C, 3, 3)}  # gates i, f, g, o
    drawn = {k: rng.standard_normal(s) / np.sqrt(9 * s[1]) for k, s in shapes.items()}
    drawn |= {f"p_{k}": 0.3 * rng.standard_normal((C, SIDE, SIDE)) for k in "ifo"}
    return drawn | {"b": 0.1 * rng.standard_normal(4 * C)}


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I/8, 8, 8] -> the states of all steps [T, B, H/8, 8, 8]."""

    def cell(carry: Pair, x: li.Value) -> tuple[Pair, li.Value]:
        h, c = carry
        both = li.conv2d(li.concat([x, h], 1), li.concat([w["W"], w["R"]], 1), padding=1, bias=w["b"])
        i, f, g, o = li.split(both, 4, 1)
        i, f = li.logistic(i + w["p_i"] * c), li.logistic(f + w["p_f"] * c)
        c = f * c + i * li.tanh(g)
        h = li.logistic(o + w["p_o"] * c) * li.tanh(c)
        return (h, c), h

    zero = li.zeros((x.shape[1], *w["p_i"].shape), str(x.dtype))
    return li.scan(cell, (zero, zero), x)[1]


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I // 8, SIDE, SIDE), dtype)
    return li.Graph("conv_lstm", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 8, 16), np.random.default_rng(1).standard_normal((7, 3, 1, SIDE, SIDE), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

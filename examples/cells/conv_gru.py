"""ConvGRU: a GRU over planes, whose products are convolutions of 3 x 3.

    z = σ(x[t] * W_z + h[t-1] * R_z + b_z)        r = σ(x[t] * W_r + h[t-1] * R_r + b_r)
    h[t] = (1 - z) ⊙ h[t-1] + z ⊙ tanh(x[t] * W_h + (r ⊙ h[t-1]) * R_h + b_h)

Source: Ballas, Yao, Pal and Courville, "Delving Deeper into Convolutional Networks for Learning Video Representations",
2015, arXiv 1511.06432, section 3.1, with biases.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "ConvGRU", "convolution", "x of I/8 and h of H/8 channels, planes of 8 x 8"
SIDE = 8


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng, C = np.random.default_rng(seed), H // 8
    shapes = {"W": (3 * C, I // 8, 3, 3), "R": (2 * C, C, 3, 3), "R_h": (C, C, 3, 3)}  # gates z, r, h
    drawn = {k: rng.standard_normal(s) / np.sqrt(9 * s[1]) for k, s in shapes.items()}
    return drawn | {"b": 0.1 * rng.standard_normal(3 * C)}


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I/8, 8, 8] -> the states of all steps [T, B, H/8, 8, 8]."""
    C = w["R_h"].shape[0]

    def cell(h: li.Value, x: li.Value) -> tuple[li.Value, li.Value]:
        z, r, new = li.split(li.conv2d(x, w["W"], padding=1, bias=w["b"]), 3, 1)
        z_of_h, r_of_h = li.split(li.conv2d(h, w["R"], padding=1), 2, 1)
        z, r = li.logistic(z + z_of_h), li.logistic(r + r_of_h)
        h = (1.0 - z) * h + z * li.tanh(new + li.conv2d(r * h, w["R_h"], padding=1))
        return h, h

    return li.scan(cell, li.zeros((x.shape[1], C, SIDE, SIDE), str(x.dtype)), x)[1]


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I // 8, SIDE, SIDE), dtype)
    return li.Graph("conv_gru", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 8, 16), np.random.default_rng(1).standard_normal((7, 3, 1, SIDE, SIDE), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

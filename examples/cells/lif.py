"""Leaky integrate-and-fire: spiking neurons that are trained through a surrogate gradient.

    u[t] = β u[t-1] + x[t] W + b - s[t-1]           β = σ(B), a decay for each neuron; a spike takes 1 from u
    s[t] = 1 where u[t] > 1, else 0                 the spikes; the slope is taken to be 1 / (1 + 25 |u[t] - 1|)²

Source: Neftci, Mostafa and Zenke, "Surrogate Gradient Learning in Spiking Neural Networks", 2019, arXiv 1901.09948,
equations 4 to 6 without a current of its own; the slope is that of SuperSpike, arXiv 1705.11146.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "Leaky integrate-and-fire", "elementwise nonlinear", "no weights between neurons"


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"W": rng.standard_normal((I, H)) / np.sqrt(I), "b": rng.uniform(0, 0.3, H), "beta": rng.uniform(1, 3, H)}


def fired(over: li.Value) -> tuple[li.Value, li.Value]:
    """The spikes of u - 1, and what the gradient needs."""
    return li.convert(over > 0.0, over.dtype), over


def surrogate(over: li.Value, arrived: li.Value) -> li.Value:
    wide = 1.0 + 25.0 * li.abs(over)
    return arrived / (wide * wide)


def layer(x: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I] -> the spikes of all steps [T, B, H]."""
    spike, decay = li.custom_vjp(fired, surrogate), li.logistic(w["beta"])

    def cell(carry: tuple[li.Value, li.Value], row: li.Value) -> tuple[tuple[li.Value, li.Value], li.Value]:
        u, s = carry
        u = decay * u + row - s
        s = spike(u - 1.0)
        return (u, s), s

    zero = li.zeros((x.shape[1], w["b"].shape[0]), str(x.dtype))
    return li.scan(cell, (zero, zero), x @ w["W"] + w["b"])[1]


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x = li.input("x", (T, B, I), dtype)
    return li.Graph("lif", [x], {"y": layer(x, w)})


def main() -> None:
    graph, x = build("T", "B", 5, 16), np.random.default_rng(1).standard_normal((20, 3, 5), np.float32)
    exe = li.compile(graph)
    worst = np.abs(exe(x=x)["y"] - li.interpret(graph, x=x)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

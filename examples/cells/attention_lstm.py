"""LSTM with attention in its body: a decoder that reads 20 states of an encoder.

    e[s] = vᵀ tanh(h[t-1] W_a + m[s] U_a)        α = softmax(e)        r = Σ_s α[s] m[s]
    i, f, g, o = [x[t], r] W + h[t-1] R + b
    c[t] = σ(f) ⊙ c[t-1] + σ(i) ⊙ tanh(g)
    h[t] = σ(o) ⊙ tanh(c[t])

Source: Bahdanau, Cho and Bengio, "Neural Machine Translation by Jointly Learning to Align and Translate", 2014, arXiv
1409.0473, appendix A.1.2, with an LSTM in place of its gated unit.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "LSTM with attention", "dense", "a memory of 20 states of H numbers, H/2 numbers compared"
MEMORY = 20
Pair = tuple[li.Value, li.Value]


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng, A = np.random.default_rng(seed), H // 2
    shapes = {"W_a": (H, A), "U_a": (H, A), "v": (A, 1), "W": (I + H, 4 * H), "R": (H, 4 * H)}
    drawn = {k: rng.standard_normal(s) / np.sqrt(s[0]) for k, s in shapes.items()}
    return drawn | {"b": 0.1 * rng.standard_normal(4 * H)}


def layer(x: li.Value, memory: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I], memory [B, 20, H] -> the states of all steps [T, B, H]."""
    keys = memory @ w["U_a"]  # [B, 20, H/2]

    def cell(carry: Pair, x: li.Value) -> tuple[Pair, li.Value]:
        h, c = carry
        scores = li.squeeze(li.tanh((h @ w["W_a"])[:, None] + keys) @ w["v"], 2)
        read = li.einsum("bs,bsh->bh", li.softmax(scores, 1), memory)
        i, f, g, o = li.split(li.concat([x, read], 1) @ w["W"] + h @ w["R"] + w["b"], 4, 1)
        c = li.logistic(f) * c + li.logistic(i) * li.tanh(g)
        h = li.logistic(o) * li.tanh(c)
        return (h, c), h

    zero = li.zeros((x.shape[1], w["R"].shape[0]), str(x.dtype))
    return li.scan(cell, (zero, zero), x)[1]


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x, memory = li.input("x", (T, B, I), dtype), li.input("memory", (B, MEMORY, H), dtype)
    return li.Graph("attention_lstm", [x, memory], {"y": layer(x, memory, w)})


def main() -> None:
    graph, rng = build("T", "B", 5, 16), np.random.default_rng(1)
    x, memory = (rng.standard_normal(s, np.float32) for s in ((7, 3, 5), (3, MEMORY, 16)))
    exe = li.compile(graph)
    worst = np.abs(exe(x=x, memory=memory)["y"] - li.interpret(graph, x=x, memory=memory)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

"""LSTM with location-sensitive attention: a decoder that sees where in 20 states of an encoder it looked last.

    e[s] = vᵀ tanh(h[t-1] W_a + m[s] U_a + (α[t-1] * F)[s] V_a)        α[t] = softmax(e)
    r = Σ_s α[t, s] m[s]        i, f, g, o = [x[t], r] W + h[t-1] R + b        * over the places
    c[t] = σ(f) ⊙ c[t-1] + σ(i) ⊙ tanh(g)        h[t] = σ(o) ⊙ tanh(c[t])

Source: Chorowski et al., "Attention-Based Models for Speech Recognition", 2015, arXiv 1506.07503, equations 8 and 9,
with an LSTM as the recurrence; F and V_a are made one matrix before the loop.
"""

import numpy as np

import lstm_ir as li

NAME, KIND, SIZES = "LSTM with location-sensitive attention", "dense", "a memory of 20 states of H numbers, 5 taps"
MEMORY = 20
REACH = np.stack([np.eye(MEMORY, k=2 - tap) for tap in range(5)])  # [tap, from, to]


def weights(I: int, H: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng, A = np.random.default_rng(seed), H // 2
    shapes = {"W_a": (H, A), "U_a": (H, A), "V_a": (4, A), "F": (5, 4), "v": (A, 1)}
    shapes |= {"W": (I + H, 4 * H), "R": (H, 4 * H)}
    drawn = {k: rng.standard_normal(s) / np.sqrt(s[0]) for k, s in shapes.items()}
    return drawn | {"b": 0.1 * rng.standard_normal(4 * H)}


def layer(x: li.Value, memory: li.Value, w: dict[str, li.Value]) -> li.Value:
    """x [T, B, I], memory [B, 20, H] -> the states of all steps [T, B, H]."""
    keys, around = memory @ w["U_a"], li.einsum("kfs,ka->fsa", li.constant(REACH, str(x.dtype)), w["F"] @ w["V_a"])

    def cell(carry: tuple[li.Value, ...], x: li.Value) -> tuple[tuple[li.Value, ...], li.Value]:
        h, c, last = carry
        keyed = keys + li.einsum("bf,fsa->bsa", last, around) + (h @ w["W_a"])[:, None]
        last = li.softmax(li.squeeze(li.tanh(keyed) @ w["v"], 2), 1)
        read = li.einsum("bs,bsh->bh", last, memory)
        i, f, g, o = li.split(li.concat([x, read], 1) @ w["W"] + h @ w["R"] + w["b"], 4, 1)
        c = li.logistic(f) * c + li.logistic(i) * li.tanh(g)
        h = li.logistic(o) * li.tanh(c)
        return (h, c, last), h

    zero, nowhere = (li.zeros((x.shape[1], n), str(x.dtype)) for n in (w["R"].shape[0], MEMORY))
    return li.scan(cell, (zero, zero, nowhere), x)[1]


def build(T: int | str, B: int | str, I: int, H: int, dtype: str = "f32", seed: int = 0) -> li.Graph:
    w = {name: li.weight(name, array, dtype) for name, array in weights(I, H, seed).items()}
    x, memory = li.input("x", (T, B, I), dtype), li.input("memory", (B, MEMORY, H), dtype)
    return li.Graph("location_attention", [x, memory], {"y": layer(x, memory, w)})


def main() -> None:
    graph, rng = build("T", "B", 5, 16), np.random.default_rng(1)
    exe, x, memory = li.compile(graph), *(rng.standard_normal(s, np.float32) for s in ((7, 3, 5), (3, MEMORY, 16)))
    worst = np.abs(exe(x=x, memory=memory)["y"] - li.interpret(graph, x=x, memory=memory)["y"]).max()
    print(f"{NAME}: largest difference to the NumPy meaning {worst:.1e}", *exe.report.notes, sep="\n")


if __name__ == "__main__":
    main()

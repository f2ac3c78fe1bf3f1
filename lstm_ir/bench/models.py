"""The benchmark's models as this project runs them, and what every runner gives back.

All runners get the same weights (PyTorch's names and gate order), in two sets that alternate between
training steps, and the same inputs. Inference gives {"y"}. A training step gives the gradients of
mean(y^2) with respect to the input and every weight: {"x", "w_ih0", "w_hh0", "b0", ...}, numbered by
layer and direction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.bench.subject import Array, BenchCall, Layers, TimedRun

Weights = list[tuple[Array, Array, Array]]  # per layer and direction: w_ih, w_hh, b
NAMES = ("w_ih", "w_hh", "b")


def calls(point: Layers, count: int = 4) -> list[BenchCall]:
    """Inputs, the same ones for every runner."""
    rng = np.random.default_rng(sum(map(ord, point.name)))
    shape = (point.T, point.B, point.I)
    return [BenchCall({"x": rng.standard_normal(shape, np.float32)}, k % 2) for k in range(count)]


def weights(point: Layers) -> tuple[Weights, Weights]:
    """Two sets, uniform in +-1/sqrt(H) as PyTorch starts; one bias, the other is zero."""
    rng = np.random.default_rng(point.H)
    s = point.H**-0.5
    sets: list[Weights] = []
    for _ in range(2):
        out: Weights = []
        width = point.I
        for _ in range(point.layers):
            for _ in range(point.directions):
                rows = point.gates * point.H
                shapes = ((rows, width), (rows, point.H), (rows,))
                w_ih, w_hh, b = (rng.uniform(-s, s, shape).astype(np.float32) for shape in shapes)
                out.append((w_ih, w_hh, b))
            width = point.directions * point.H
        sets.append(out)
    return sets[0], sets[1]


def stacked(point: Layers, weights: Weights) -> dict[str, Array]:
    """The weights as `li.lstm` takes them: directions stacked, by `layer/name`."""
    out: dict[str, Array] = {}
    for layer in range(point.layers):
        parts = weights[layer * point.directions : (layer + 1) * point.directions]
        out |= {f"layer{layer}/{n}": np.stack([p[i] for p in parts]) for i, n in enumerate(NAMES)}
    return out


def graph_of(point: Layers, weights: Weights, names: bool = False) -> Any:
    """The point's model: output y, or loss where it trains, whose weights are then inputs. Its steps and rows are
    numbers, or the named sizes T and B."""
    import lstm_ir as li

    x = li.input("x", ("T", "B", point.I) if names else (point.T, point.B, point.I))
    y, inputs = x, [x]
    direction = "bidirectional" if point.directions == 2 else "forward"
    arrays = stacked(point, weights)
    for layer in range(point.layers):
        values = []
        for n in NAMES:
            a = arrays[f"layer{layer}/{n}"]
            if point.training:
                inputs.append(li.input(f"{n}{layer}", a.shape))
                values.append(inputs[-1])
            else:
                values.append(li.weight(f"layer{layer}/{n}", a))
        if point.cell == "lstm":
            y = li.lstm(y, *values, direction=direction)[0]
        else:
            zero = np.zeros((point.directions, point.H), np.float32)
            y = li.gru(y, *values, b_hn=zero, reset_after=True, direction=direction)[0]
    outputs = {"loss": li.mean(y * y)} if point.training else {"y": y}
    return li.Graph("bench", inputs, outputs)


def program_of(point: Layers, weights: Weights, names: bool = False) -> Any:
    """What is compiled: the model, or its gradients by the input and every weight."""
    import lstm_ir as li

    graph = graph_of(point, weights, names)
    return li.grad(graph, of="loss", wrt=list(graph.input_names)) if point.training else graph


def of_executable(point: Layers, sets: tuple[Weights, Weights], exe: Any) -> TimedRun:
    """A compiled or loaded module of the point."""
    if not point.training:
        return TimedRun(lambda call: exe(call.arrays), lambda out: {"y": out["y"]})
    given = [
        {k.replace(f"layer{n}/", "") + str(n): a for n in range(point.layers)
         for k, a in stacked(point, s).items() if k.startswith(f"layer{n}/")}
        for s in sets
    ]  # fmt: skip

    def read(out: dict[str, Array]) -> dict[str, Array]:
        found = {"x": out["d_x"]}
        for i in range(point.layers * point.directions):
            layer, d = divmod(i, point.directions)
            found |= {f"{n}{i}": out[f"d_{n}{layer}"][d] for n in NAMES}
        return found

    return TimedRun(lambda call: exe({**call.arrays, **given[call.turn]}), read)

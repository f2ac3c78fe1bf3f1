"""PyTorch's nn.LSTM, nn.GRU and nn.RNN in plain NumPy, one sequence and one step at a time.

Written for real and for complex numbers: a complex step, f(x + i e v) / e, gives derivatives
without rounding, so gradients can be checked as sharply as values (e = 1e-30).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Weights = Mapping[str, Array]


@dataclass(frozen=True)
class Layer:
    """What nn.LSTM, nn.GRU and nn.RNN are told when they are made."""

    cell: str  # lstm, gru, rnn_tanh or rnn_relu
    layers: int
    bidirectional: bool

    @property
    def suffixes(self) -> list[str]:
        """Endings of the weights' names, in the order of the states."""
        ways = ("", "_reverse") if self.bidirectional else ("",)
        return [f"l{layer}{way}" for layer in range(self.layers) for way in ways]


def sigmoid(x: Array) -> Array:
    """Logistic function, by tanh, which exists for complex numbers and does not overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


def relu(x: Array) -> Array:
    """Keep what has a positive real part."""
    return np.where(x.real > 0, x, 0.0)


def _lstm(x: Array, h: Array, c: Array, w: Weights, s: str) -> tuple[Array, Array]:
    z = w[f"weight_ih_{s}"] @ x + w[f"bias_ih_{s}"] + w[f"weight_hh_{s}"] @ h + w[f"bias_hh_{s}"]
    i, f, g, o = np.split(z, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    projection = w.get(f"weight_hr_{s}")
    return (h if projection is None else projection @ h), c


def _gru(x: Array, h: Array, c: Array, w: Weights, s: str) -> tuple[Array, Array]:
    x_r, x_z, x_n = np.split(w[f"weight_ih_{s}"] @ x + w[f"bias_ih_{s}"], 3)
    h_r, h_z, h_n = np.split(w[f"weight_hh_{s}"] @ h + w[f"bias_hh_{s}"], 3)
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    return (1 - z) * np.tanh(x_n + r * h_n) + z * h, c


def _rnn(activation: Callable[[Array], Array]) -> Callable[..., tuple[Array, Array]]:
    def step(x: Array, h: Array, c: Array, w: Weights, s: str) -> tuple[Array, Array]:
        z = w[f"weight_ih_{s}"] @ x + w[f"bias_ih_{s}"]
        return activation(z + w[f"weight_hh_{s}"] @ h + w[f"bias_hh_{s}"]), c

    return step


_STEPS = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _rnn(np.tanh), "rnn_relu": _rnn(relu)}


def run(layer: Layer, weights: Weights, x: Array, h_0: Array, c_0: Array, lengths: Array) -> Weights:
    """Run x [T, B, I] from h_0 [L D, B, P] and c_0 [L D, B, H]: output [T, B, D P], h_n, c_n.

    Sequence b ends after lengths[b] steps; its output is zero from there on, as PyTorch pads it.
    """
    h_n, c_n, columns = np.array(h_0), np.array(c_0), []
    kind = np.result_type(x, h_0, c_0, *weights.values())
    h_n, c_n = h_n.astype(kind), c_n.astype(kind)
    for b, length in enumerate(lengths):
        y, h_n[:, b], c_n[:, b] = _sequence(layer, weights, x[:length, b], h_0[:, b], c_0[:, b])
        columns.append(np.pad(y, ((0, len(x) - length), (0, 0))))
    return {"output": np.stack(columns, axis=1), "h_n": h_n, "c_n": c_n}


def _sequence(layer: Layer, w: Weights, y: Array, h_0: Array, c_0: Array) -> tuple[Array, ...]:
    """Run one sequence y [T, I] through every layer and direction."""
    ways, ends = (1, -1) if layer.bidirectional else (1,), []
    for depth in range(layer.layers):
        halves = []
        for k, way in enumerate(ways):
            at = depth * len(ways) + k
            h, c, steps = h_0[at], c_0[at], []
            for x in y[::way]:
                h, c = _STEPS[layer.cell](x, h, c, w, layer.suffixes[at])
                steps.append(h)
            halves.append(np.stack(steps)[::way])
            ends.append((h, c))
        y = np.concatenate(halves, axis=1)
    return y, np.stack([h for h, _ in ends]), np.stack([c for _, c in ends])

"""Fronts of two convolutions before a recurrent layer: all gradients, weights held by the module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from convolution_cases import near

import lstm_ir as li


def front(T: Any, B: Any, channels: int, outputs: int, taps: int, stride: int) -> li.Graph:
    """x [T,B,C] through two convolutions and an LSTM; the gradients of a sum of squares."""
    r = np.random.default_rng([channels, outputs])
    hidden = 24

    def weight(name: str, *shape: int) -> li.Value:
        scale = 1 / np.sqrt(np.prod(shape[1:]))
        return li.weight(name, (r.standard_normal(shape) * scale).astype("f4"))

    x = li.input("x", (T, B, channels))
    y = li.transpose(x, (1, 2, 0))
    y = li.tanh(li.conv1d(y, weight("w1", outputs, channels, taps), padding=taps // 2))
    y = li.tanh(li.conv1d(y, weight("w2", outputs, outputs, taps), stride, taps // 2))
    rows = li.transpose(y, (2, 0, 1))
    z, _, _ = li.lstm(rows, weight("wi", 4 * hidden, outputs), weight("wh", 4 * hidden, hidden))
    graph = li.Graph("front", [x], {"loss": li.sum(z * z)})
    return li.grad(graph, "loss", ["x", "w1", "w2", "wi"])


def check(sizes: tuple[Any, Any], form: tuple[int, int, int, int], device: str, seed: int) -> None:
    graph, r = front(*sizes, *form), np.random.default_rng(seed)
    exe = li.compile(graph, device=device)
    assert not [n for n in exe.report.notes if "compiled with" in n]
    for t, b in ((37, 3), (9, 1), (5, 0)) if sizes == ("T", "B") else (sizes,):
        x = r.standard_normal((t, b, form[0])).astype("f4")
        want = li.interpret(graph, x=x)
        for name, got in exe(x=x).items():
            near(got, want[name].astype("f8"), 2e-5, f"{form} {(t, b)} {name}")


def test_a_front_of_open_sizes(seed: int) -> None:
    check(("T", "B"), (40, 64, 3, 2), "local-task", seed)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["local-task", "local-sync"])
@pytest.mark.parametrize("form", [(80, 128, 3, 2), (16, 256, 5, 1), (3, 40, 4, 3)], ids=lambda f: "x".join(map(str, f)))
def test_wider_fronts(form: tuple[int, int, int, int], device: str, seed: int) -> None:
    check(("T", "B"), form, device, seed)
    check((100, 2), form, device, seed)

"""Batch-major sequences of fixed length and an open batch: the shape of images and windows."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import build
from lstm_ir.backends.run.devices import resolve

I, H = 5, 24


def graph(T: int, seed: int) -> tuple[li.Graph, np.random.Generator]:
    rng = np.random.default_rng(seed)
    w_ih, w_hh = (0.3 * rng.standard_normal((4 * H, n)).astype("f4") for n in (I, H))
    x = li.input("x", ("B", T, I))
    y, h, _ = li.lstm(x, li.weight("w_ih", w_ih), li.weight("w_hh", w_hh), layout="batch")
    return li.Graph("windows", [x], {"y": y, "h": h[0]}), rng


@pytest.mark.slow_cases(T=[8])
@pytest.mark.parametrize("T", [1, 7, 8, 16, 48])
def test_every_length_compiles_and_is_right(T: int, seed: int) -> None:
    """IREE 3.13 fails where a product's T*B rows are packed together with the transposition."""
    g, rng = graph(T, seed)
    exe = li.compile(g)
    for B in (1, 3, 33):
        x = rng.standard_normal((B, T, I)).astype("f4")
        out, want = exe(x=x), li.interpret(g, x=x)
        for name in want:
            np.testing.assert_allclose(out[name], want[name], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4", "aarch64"])
def test_every_vector_width_compiles(cpu: str, seed: int) -> None:
    g, _ = graph(16, seed)
    _, blob = build(g, resolve(f"cpu:{cpu}"))
    assert len(blob) > 1000

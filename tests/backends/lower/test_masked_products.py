"""Products whose result meets a mask that lies in memory: IREE packs the mask as single bits."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_ir as li

T, B, H = 7, 5, 6


def _loop() -> li.Graph:
    """A cell that keeps its state where the mask says so, and gives the state of every step."""
    x, mask = li.input("x", (T, B, H)), li.input("mask", (T, B, H), "i1")
    w, h0 = li.input("w", (H, 4 * H)), li.input("h0", (B, H))

    def cell(h: li.Value, row: tuple[li.Value, li.Value]) -> tuple[li.Value, li.Value]:
        made = li.tanh((h @ w)[:, :H]) * row[0]
        new = li.select(row[1], made, h)
        return new, new

    h_n, y = li.scan(cell, h0, (x, mask))
    return li.Graph("masked", [x, mask, w, h0], {"h_n": h_n, "y": y})


@pytest.mark.parametrize("verify", [False, True])
def test_a_state_that_a_mask_holds(rng: np.random.Generator, verify: bool) -> None:
    """By the loop: right where nothing checks the module, and as it is where IREE's checks do."""
    shapes = {"x": (T, B, H), "w": (H, 4 * H), "h0": (B, H)}
    a = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    mask = rng.integers(0, 2, (T, B, H)).astype(bool)
    h, want = a["h0"].astype("f8"), []
    for t in range(T):
        h = np.where(mask[t], np.tanh((h @ a["w"].astype("f8"))[:, :H]) * a["x"][t], h)
        want.append(h)
    options = {"kernels": False, "verify": verify, "cache": False}
    with li.compile(_loop(), device="local-task", options=options) as exe:
        for _ in range(3):
            got = exe(**a, mask=mask)
            np.testing.assert_allclose(got["y"], np.stack(want), atol=2e-5)
            np.testing.assert_allclose(got["h_n"], h, atol=2e-5)
        assert not [n for n in exe.report.notes if "compiled with" in n]

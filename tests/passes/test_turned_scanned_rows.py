"""`turn-bodies` where a carry becomes the scanned row itself: both stand in one way."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.run.devices import resolve
from lstm_ir.passes.pipeline import Pipeline

CPU = resolve("cpu").info
T, N, B, H = 5, 4, 6, 64


@pytest.mark.parametrize("rows", ["B", B])
@pytest.mark.parametrize("kept", ["carried", "shown"])
def test_the_row_of_the_step_before(kept: str, rows: int | str, rng: np.random.Generator) -> None:
    """s <- s * g[t-1] + k[t], where s is [N,B,H] and g, one number for each head, [N,B]."""
    shapes = {"g": ("T", N, rows), "k": ("T", N, rows, H), "s0": (N, rows, H), "g0": (N, rows)}
    given = {n: li.input(n, s) for n, s in shapes.items()}

    def cell(
        state: tuple[li.Value, li.Value], row: tuple[li.Value, li.Value]
    ) -> tuple[tuple[li.Value, li.Value], tuple[li.Value, ...]]:
        (s, before), (g, k) = state, row
        s = s * li.broadcast_in_dim(before, s.shape, (0, 1)) + k
        return (s, g if kept == "carried" else g * 0.5), (s, *([g] if kept == "shown" else []))

    (s, g), ys = li.scan(cell, (given["s0"], given["g0"]), (given["g"], given["k"]))
    graph = li.Graph("delayed", list(given.values()), {"s": s, "g": g, **{f"y{i}": y for i, y in enumerate(ys)}})
    turned = Pipeline.parse("core,decompose,turn-bodies").run(graph, CPU)
    assert [step.name for step in turned.steps if step.name == "turn-bodies" and step.changed]

    sizes = {"g": (T, N, B), "k": (T, N, B, H), "s0": (N, B, H), "g0": (N, B)}
    a = {n: rng.standard_normal(s).astype(np.float32) for n, s in sizes.items()}
    state, before, want = a["s0"].astype(np.float64), a["g0"], []
    for g_t, k_t in zip(a["g"], a["k"], strict=True):
        state = state * before[:, :, None] + k_t
        before = g_t if kept == "carried" else g_t * np.float32(0.5)
        want.append(state)
    for got in (li.interpret(turned.graph, a), li.compile(graph)(a)):
        np.testing.assert_allclose(got["y0"], want, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(got["s"], state, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(got["g"], before)
        if kept == "shown":
            np.testing.assert_array_equal(got["y1"], a["g"])

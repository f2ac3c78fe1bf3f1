"""Batched products beside columns of wider rows: the gradient of attention, whose decoder joins state and context."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_ir as li

B, T, S, H = 16, 30, 35, 256
Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("turned", [False, True])
def test_they_compile_at_once(turned: bool, rng: np.random.Generator) -> None:
    """Rows that fill no tile: IREE packs them with the product in vectors that it then refuses."""
    shapes = {"a": (B, T, S), "b": (B, S, H), "c": (B, T, 2 * H)}
    a, b, c = inputs = [li.input(n, s) for n, s in shapes.items()]
    y = li.matmul(a, b) + c[:, :, :H]
    graph = li.Graph("g", inputs, {"y": li.transpose(y, (1, 0, 2)) if turned else y})
    given = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    with li.compile(graph, options={"cache": False}) as exe:
        assert not [n for n in exe.report.notes if n.startswith("compiled with")]
        got = exe(given)["y"]
    wide = {n: v.astype("f8") for n, v in given.items()}
    want = wide["a"] @ wide["b"] + wide["c"][:, :, :H]
    np.testing.assert_allclose(got.transpose(1, 0, 2) if turned else got, want, rtol=1e-4, atol=1e-4)

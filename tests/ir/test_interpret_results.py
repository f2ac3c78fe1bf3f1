"""What `interpret` gives is the caller's: writing into it changes no input, no weight and no other result."""

from __future__ import annotations

import numpy as np

import lstm_ir as li


def test_results_may_be_written_into() -> None:
    x = li.input("x", (2, 3))
    w = li.weight("w", np.ones((2, 3), "f4"))
    flat = li.reshape(x, (6,))
    outputs = {
        "x": x, "flat": flat, "again": flat, "part": x[:1], "turned": li.swapaxes(x, 0, 1), "wide": li.zeros((2, 2)),
        "w": w, "number": li.constant(2.0), "sum": li.sum(x),
    }  # fmt: skip
    g = li.Graph("g", [x], outputs)
    a = np.arange(6, dtype="f4").reshape(2, 3)
    out = li.interpret(g, x=a)
    for array in out.values():
        array += 1
    np.testing.assert_array_equal(a, np.arange(6, dtype="f4").reshape(2, 3))
    np.testing.assert_array_equal(out["flat"], np.arange(1, 7))
    np.testing.assert_array_equal(out["again"], np.arange(1, 7))
    np.testing.assert_array_equal(out["w"], np.full((2, 3), 2))
    np.testing.assert_array_equal(li.interpret(g, x=a)["w"], np.ones((2, 3)))

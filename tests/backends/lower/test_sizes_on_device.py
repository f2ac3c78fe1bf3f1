"""What is computed from data and a named size stays on the device.

IREE takes small tensors of sizes, and what is computed from them, for shapes, and reads them on the
host (`Emitter.scalar`).
"""

from __future__ import annotations

import numpy as np
import pytest
import tolerances

import lstm_ir as li

H = 5
GATES = {"lstm": 4, "gru": 3}


def _gradients(cell: str, direction: str) -> li.Graph:
    """One sequence: its length, held between 0 and T, is one number, as T is."""
    x, n = li.input("x", ("T", 1, 3)), li.input("n", (1,), "i32")
    w, r = li.input("w", (1, GATES[cell] * H, 3)), li.input("r", (1, GATES[cell] * H, H))
    y, *_ = getattr(li, cell)(x, w, r, lengths=n, direction=direction)
    loss = li.Graph("g", [x, n, w, r], {"loss": li.mean(y * y)})
    return li.grad(loss, "loss", ["w", "x", "r"])


@pytest.mark.slow_cases(cell=["gru"])
@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("cell", sorted(GATES))
def test_gradients_of_one_sequence_with_a_length(cell: str, direction: str, kernels: bool) -> None:
    """The compiler left a dispatch of the length in no submission, and gave no module."""
    g = _gradients(cell, direction)
    exe = li.compile(g, options={"kernels": kernels})
    for T, length in ((1, 1), (4, 0), (9, 7)):
        rng, given = np.random.default_rng(T), {"n": np.array([length], "i4")}
        for p in g.params:
            shape = [T if str(d) == "T" else int(str(d)) for d in p.shape]
            given.setdefault(p.node.attrs["name"], rng.uniform(-1, 1, shape).astype("f4"))
        got = exe(given)
        for k, v in li.interpret(g, given).items():
            tolerances.agree(got[k], v, tolerances.RECURRENCE, "cpu")

"""Loops with more memories than a dispatch takes tensors: their scratch memory shares one."""

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends import kernels
from lstm_ir.backends.kernels.call import BINDINGS

SIZES = ((5, 3), (1, 1), (2, 0), (0, 2), (9, 18))


def test_scratch_memories_share_a_tensor(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a dispatch may take few; against the loop, for several sizes of one module."""
    monkeypatch.setattr(kernels.dispatch, "SPARE", BINDINGS)
    shared = []
    original = kernels.dispatch.Dispatch._shared

    def seen(self: kernels.dispatch.Dispatch, types: list[li.TensorType]) -> object:
        shared.append(types)
        return original(self, types)

    monkeypatch.setattr(kernels.dispatch.Dispatch, "_shared", seen)
    I, H = 7, 19
    arrays = {"w_ih": (2, 4 * H, I), "w_hh": (2, 4 * H, H), "b": (2, 4 * H)}
    w = {n: rng.standard_normal(s).astype(np.float32) * 0.3 for n, s in arrays.items()}
    x = li.input("x", ("T", "B", I))
    y, h_n, c_n = li.lstm(x, *(li.weight(n, a) for n, a in w.items()), direction="bidirectional")
    outputs = {"loss": li.sum(y * y) + li.sum(h_n[0] * c_n[1])}
    g = li.grad(li.Graph("both", [x], outputs), "loss", ["x", "w_hh", "b"])
    exe, loop = li.compile(g), li.compile(g, options={"kernels": False})
    assert [n for n in exe.report.notes if ": loop" in n] == []
    assert len(shared) > 2  # there and back, each with a projection before and inside
    assert max(map(len, shared)) > 2
    for T, B in SIZES:
        a = rng.standard_normal((T, B, I)).astype(np.float32)
        got, want = exe(x=a), loop(x=a)
        for name, v in want.items():
            largest = np.abs(v).max(initial=1.0)
            assert np.abs(got[name] - v).max(initial=0.0) <= 1e-5 * largest, (name, T, B)

"""Results are memory of their own: looked at once where sizes alone decide what a module does, else in every call."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.run.executable import Executable

Array = np.ndarray
W, STEPS = 5, 4


def plain() -> li.Graph:
    x = li.input("x", ("B", W))
    return li.Graph("plain", [x], {"y": li.tanh(x), "same": x, "turned": li.reshape(x, (W, "B"))})


def by_data() -> li.Graph:
    """Whether `y` is the input itself, the number `n` says."""
    x, n = li.input("x", ("B", W)), li.input("n", (), "i32")
    carry, _ = li.scan(lambda c, _: (c + c, None), x, length=STEPS, count=n)
    return li.Graph("by_data", [x, n], {"y": carry})


def knows(exe: Executable) -> list[bool]:
    """Of each combination of shapes, whether calls look no more."""
    return [plan._apart for plan in exe.entries[next(iter(exe.entries))].plans.values()]


@pytest.mark.parametrize("rows", [3, 9000])  # 9000 rows are lent
def test_outputs_that_are_inputs_are_copied_in_every_call(rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with li.compile(plain(), "cpu") as exe:
        found, given = [], []
        for _ in range(4):
            x = rng.standard_normal((rows, W)).astype(np.float32)
            given.append(x.copy())
            found.append(exe(x=x))
            found[-1]["same"][...] += 1  # a caller's own memory
            found[-1]["y"][...] += 1
        assert knows(exe) == [False]
        for x, out in zip(given, found, strict=True):
            np.testing.assert_array_equal(out["turned"], x.reshape(W, rows), err_msg=f"seed {seed}")
            np.testing.assert_array_equal(out["same"], x + 1, err_msg=f"seed {seed}")
            np.testing.assert_allclose(out["y"], np.tanh(x) + 1, rtol=1e-5, atol=1e-6, err_msg=f"seed {seed}")


@pytest.mark.parametrize("kernels", [False, True])
def test_where_data_decide_every_call_looks(kernels: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with li.compile(by_data(), "cpu", options={"kernels": kernels}) as exe:
        found, wanted = [], []
        for n in (2, 0, 3, 0, 0):
            x = rng.standard_normal((3, W)).astype(np.float32)
            found.append(exe(x=x, n=np.int32(n))["y"])
            wanted.append(x * np.float32(2**n))
        assert knows(exe) == [kernels]  # a kernel decides inside of itself: what it gives is always its own
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}")


def test_calls_with_other_sizes_are_looked_at_anew(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = li.input("x", ("B", W))
    with li.compile(li.Graph("g", [x], {"y": li.tanh(x)}), "cpu") as exe:
        for rows in (2, 3, 2, 3):
            a = rng.standard_normal((rows, W)).astype(np.float32)
            y = exe(x=a)["y"]
            y[...] += 1
            np.testing.assert_allclose(exe(x=a)["y"] + 1, y, rtol=1e-5, atol=1e-6, err_msg=f"seed {seed}")
        assert knows(exe) == [True, True]

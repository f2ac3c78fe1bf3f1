"""A loop without kernels starts from memory of its own.

IREE 3.13 takes the offset of what a loop carries first for 0, where it is not (`first_carried`).
"""

from __future__ import annotations

from collections.abc import Callable

import layer_cases
import numpy as np
import pytest
import tolerances
from device import need

import lstm_ir as li

LOOPS = {"kernels": False}
B, H = 2, 3


def _read_again() -> li.Graph:
    """Rows that the loop and what follows it read: made in the submission that makes its start."""
    x, s = li.input("x", ("T", "B", H)), li.input("s", ("B", H))
    z = li.tanh(x)
    c, ys = li.scan(lambda c, row: (c * 0.5 + row, c * 2.0), li.exp(s), z)
    return li.Graph("g", [x, s], {"y": li.sum(ys * z, (0,)), "c": c * 2.0})


def _count_and_hold() -> li.Graph:
    """The start is a sum over rows; steps read a choice of rows, made before the loop."""
    operands, attrs = layer_cases.build("lstm", "count+hold", np.float32, sizes=(1, 1, H, H, H))
    g = layer_cases.graph("lstm", operands, attrs)
    return li.vjp(g, ["y", "h_n"], ["x", "w_hh"])


@pytest.mark.parametrize("device", ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)])
@pytest.mark.parametrize("make", [_count_and_hold, _read_again])
def test_a_loop_starts_from_memory_of_its_own(make: Callable[[], li.Graph], device: str) -> None:
    if device != "cpu":
        need(device)
    g = make()
    exe = li.compile(g, device, options=LOOPS)
    for T in (1, 11, 40):
        rng, given = np.random.default_rng(T), {}
        for p in g.params:
            shape = [{"T": T, "B": B}.get(str(d)) or int(str(d)) for d in p.shape]
            given[p.node.attrs["name"]] = (
                np.asarray(T, "i4") if not shape else rng.uniform(-1, 1, shape).astype("f4")
            )
        got = exe(given)
        for k, v in li.interpret(g, given).items():
            tolerances.agree(got[k], v, tolerances.RECURRENCE, device)

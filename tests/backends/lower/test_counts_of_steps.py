"""Counts of steps that are computed, in 64 bits, and too large: as many steps as there are, on devices that ask nobody.

Their lower 32 bits are another number, 2 here, of other parity than the five steps.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.program import Program

T, B, H = 5, 3, 8
FORMS: dict[str, dict[str, Any]] = {
    "loop": {"kernels": False},
    "one dispatch": {"kernels": True},
    "a dispatch per step": {"kernels": True, "thresholds": {"whole_loop": 0}},
}


def model(counted: bool, steps: int | str = T) -> li.Graph:
    rng = np.random.default_rng(5)
    x, w = li.input("x", (steps, B, H)), li.weight("w", rng.standard_normal((H, H)).astype("f4") / 4)
    n = li.input("n", (), "i64")

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        h = li.tanh(row + h @ w) + 0.125 * h  # no layer of the core ops, which say their range themselves
        return h, h

    count: dict[str, Any] = {"count": n + li.constant(2**32, "i64")} if counted else {}
    last, y = li.scan(cell, li.zeros((B, H)), x, **count)
    return li.Graph("g", [x, n] if counted else [x], {"last": last, "y": y})


@pytest.mark.vulkan
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("steps", [T, "T"])
def test_a_count_beyond_32_bits_is_the_last_step(form: str, steps: int | str, rng: np.random.Generator) -> None:
    need("vulkan")
    x = rng.standard_normal((T, B, H)).astype("f4")
    want = li.interpret(model(False, steps), x=x)
    with li.compile(model(True, steps), "vulkan", options=FORMS[form]) as exe:
        got = exe(x=x, n=np.int64(2))
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=2e-5, atol=2e-5, err_msg=name)


def test_on_cpus_it_is_refused(rng: np.random.Generator) -> None:
    x = rng.standard_normal((T, B, H)).astype("f4")
    with li.compile(model(True)) as exe, pytest.raises(li.ValueRangeError, match=r"count has a value outside 0\.\.5"):
        exe(x=x, n=np.int64(2))


def test_pure_stablehlo_clamps_before_it_converts() -> None:
    text = str(li.lower(model(True)))
    (clamp,) = re.findall(r"stablehlo\.clamp .*", text)
    assert "tensor<i64>" in clamp


def test_cuda_clamps_in_64_bits() -> None:
    """Not executed: the kernels read what is clamped."""
    text = prepare(Program.of(model(True)), resolve("cuda:sm_89"), FORMS["a dispatch per step"]).text
    assert re.search(r"stablehlo\.minimum .*tensor<i64>", text)

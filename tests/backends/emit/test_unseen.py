"""Literal factors and divisors of 0 on Vulkan, of which drivers make what they like."""

from __future__ import annotations

import numpy as np
import pytest
from device import need

import lstm_ir as li


@pytest.mark.vulkan
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_zero_times_what_is_not_finite(kind: str) -> None:
    need("vulkan")
    x = li.input("x", (7,), kind)
    known = li.select(li.full((7,), True, "i1"), li.zeros((7,), kind), x)
    outputs = {
        "right": x * 0.0,
        "left": li.full((7,), -0.0, kind) * x,
        "above": li.zeros((7,), kind) / x,
        "known": known * x,
        "below": x / 0.0,
        "below_minus": x / li.full((7,), -0.0, kind),
    }
    a = np.array([1, -2, np.nan, np.inf, -np.inf, 0.0, -0.0], li.DType(kind).numpy)
    with li.compile(li.Graph("zeros", [x], outputs), "vulkan", options={"cache": False}) as exe:
        got = exe(x=a)
    with np.errstate(invalid="ignore", divide="ignore"):
        want = {"right": a * 0.0, "left": -0.0 * a, "above": 0.0 / a, "known": 0.0 * a}
        want |= {"below": a / 0.0, "below_minus": a / -0.0}
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)
        plain = ~np.isnan(value)
        np.testing.assert_array_equal(np.signbit(got[name])[plain], np.signbit(value)[plain], err_msg=name)


@pytest.mark.vulkan
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_the_mean_of_nothing(kind: str) -> None:
    """NaN, as 0 / 0 is; Mesa's driver took it for 0."""
    need("vulkan")
    x = li.input("x", (0, 7), kind)
    graph = li.Graph("nothing", [x], {"mean": li.mean(x, 0), "var": li.var(x, 0), "all": li.mean(x)})
    with li.compile(graph, "vulkan", options={"cache": False}) as exe:
        got = exe(x=np.zeros((0, 7), li.DType(kind).numpy))
    assert all(np.isnan(v).all() for v in got.values()), got

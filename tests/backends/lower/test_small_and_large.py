"""What a CPU makes of subnormal numbers and of sines of large ones, as docs/core-ops.md says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import lstm_ir as li

SMALL = {"f32": 1e-40, "f64": 1e-310, "f16": 6e-8}


def graph(d: str) -> li.Graph:
    x, y = li.input("x", (3,), d), li.input("y", (6,), d)
    flags = {"equal": li.equal(x, 0.0), "less": li.less(0.0, x)}
    moved = {"reverse": li.reverse(x), "negate": -x}
    return li.Graph(
        d, [x, y], {"double": x * 2.0, "sum": x + 0.0, **flags, **moved, "sin": li.sin(y), "cos": li.cos(y)}
    )


def test_on_the_cpu() -> None:
    exe = li.compile(li.Program("numbers", {d: graph(d) for d in SMALL}))
    large = [2.0**53, -(2.0**53), 1e10, 2.0**54, 2.0**100, 1e38]
    for d, small in SMALL.items():
        x: Any = np.array([small, 0, 1], li.DType(d).numpy)
        y = np.array(large if d != "f16" else [65504, -6e4, 1e3, 1, 2, 3], x.dtype)
        got = exe.entries[d](x=x, y=y)
        flushed = d != "f16"
        keep = np.array([0 if flushed else small, 0, 1], x.dtype)
        np.testing.assert_array_equal(got["double"], keep + keep)
        np.testing.assert_array_equal(got["sum"], keep)
        np.testing.assert_array_equal(got["equal"], [flushed, True, False])
        np.testing.assert_array_equal(got["less"], [not flushed, False, True])
        np.testing.assert_array_equal(got["reverse"], x[::-1])
        np.testing.assert_array_equal(got["negate"], -x)
        for name, f in (("sin", math.sin), ("cos", math.cos)):
            right = 3 if flushed else 6
            want = [f(float(v)) for v in y[:right]]
            np.testing.assert_allclose(got[name][:right], want, rtol=0, atol=2e-3 if d == "f16" else 2e-6)
            assert np.isnan(got[name][right:]).all(), name

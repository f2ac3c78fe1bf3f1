"""What static samples lower to: StableHLO alone, which XLA's CPU compiler computes alike."""

from __future__ import annotations

import re

import numpy as np
import pytest
import sample
import xla
from device import need

import lstm_ir as li
from lstm_ir.ir.opdef import OPS, Level

OP = re.compile(r'^\s*(?:%[\w:#, %]+ = )?"?([a-z_]+)\.[a-z_]+', re.M)
PRIMITIVES = sorted(n for n, op in OPS.items() if op.level is Level.primitive)
XLA_PER_OP = 3


def static(op: str) -> list[sample.Sample]:
    return [s for s in sample.samples(op) if s.graph.is_static]


@pytest.mark.parametrize("op", PRIMITIVES)
def test_static_samples_are_pure(op: str) -> None:
    for s in static(op):
        used = set(OP.findall(li.lower(s.graph, pipeline=""))) - {"module", "return"}
        assert used <= {"builtin", "func", "stablehlo"}, s.name


@pytest.mark.parametrize("op", PRIMITIVES)
def test_xla_agrees(op: str) -> None:
    need("jax")
    cases = static(op)
    for s in cases[:: -(-len(cases) // XLA_PER_OP) if cases else 1]:
        want, got = li.interpret(s.graph, s.inputs), xla.run(s.graph, s.inputs)
        for k, w in want.items():
            if w.dtype.kind in "iub":
                np.testing.assert_array_equal(got[k], w, err_msg=s.name)
                continue
            # XLA's own f32 functions err by a few ulp; halves round each result once
            limit = {2: 8e-3, 4: 5e-6, 8: 1e-11}[w.dtype.itemsize]
            a, b = got[k].astype("f8"), w.astype("f8")
            np.testing.assert_allclose(a, b, rtol=limit, atol=limit, err_msg=s.name)

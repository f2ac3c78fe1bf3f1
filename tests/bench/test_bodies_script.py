"""benchmarks/bodies.py: each body means to this project what it means to JAX."""

from __future__ import annotations

import numpy as np
import pytest
from device import need
from loaded_file import loaded
from paths import ROOT
from tolerances import RECURRENCE, close

import lstm_ir as li

MADE = loaded(ROOT / "benchmarks" / "bodies.py")
CASES = [
    (name, training) for name, of in MADE.BODIES.items() for training in (False, True) if of.trains or not training
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "training"), CASES)
def test_a_body_is_the_same_to_both(name: str, training: bool) -> None:
    """Integers exactly; floats as far as f32 sums of other orders differ."""
    need("jax")
    point = MADE.Point(5, 3, 8)
    call, graph = MADE.calls(name, point, 2)[1], MADE.graph(name, point, training)
    got = li.interpret(graph, {**call.given, **MADE.weights(name, point)[1]} if training else call.given)
    want = MADE.jax_jit(name, point, training)(call)
    assert got.keys() == want.keys()
    for k in [k for k, w in want.items() if w.dtype.kind != "f"]:
        np.testing.assert_array_equal(got.pop(k), want.pop(k), k)
    close(got, want, RECURRENCE["f32", "cpu"], name)
    assert all(np.abs(w).max() > 0 for w in want.values()), "a result that says nothing"


def test_results_that_differ_are_named() -> None:
    """Integers count by place, floats by the largest; NaN equals nothing."""
    want = {"a": np.array([1.0, 2.0], "f4"), "n": np.array([1, 2], "i4"), "z": np.array([0.0], "f4")}
    assert MADE.differing(want, want) == []
    got = {"a": np.array([1.0, 2.01], "f4"), "n": np.array([1, 3], "i4"), "z": np.array([np.nan], "f4")}
    assert MADE.differing(got, want) == [
        "a by 0.005 of the largest", "n in 50.00% of the places", "z by inf of the largest",
    ]  # fmt: skip

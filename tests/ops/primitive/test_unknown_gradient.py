"""A value whose gradient is not known: results are as they are, and what asks for its gradient is refused with why."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ops.primitive.custom_gradient import unknown_gradient

X = np.linspace(-1, 2, 15, dtype=np.float32).reshape(5, 3)
WHY = "the original has a gradient of its own"


def graph() -> li.Graph:
    """One result through such a value, one beside it."""
    x, w = li.input("x", ("T", 3)), li.weight("w", np.array([2, -1, 3], np.float32))
    return li.Graph("g", [x], {"y": unknown_gradient(x * w, WHY) * 2.0, "z": x * w + x})


def test_results_are_the_values() -> None:
    made = li.compile(graph())(x=X)
    np.testing.assert_allclose(made["y"], X * [2, -1, 3] * 2, rtol=1e-6)
    assert str(li.parse(str(graph()))) == str(graph())


@pytest.mark.parametrize("wrt", ["x", "w"])
def test_a_gradient_through_it_is_refused(wrt: str) -> None:
    said = rf"stop_gradient: {WHY}\n  operands: operand: f32\[T,3\]\n  at test_unknown_gradient\.py:\d+"
    with pytest.raises(li.GradientError, match=said):
        li.vjp(graph(), ["y"], [wrt])
    with pytest.raises(li.GradientError, match=WHY):
        li.vjp(graph(), ["y", "z"], [wrt])


def test_a_gradient_beside_it_is_not() -> None:
    back = li.vjp(graph(), ["z"], ["x"])
    found = li.interpret(back, x=X, ct_z=np.ones_like(X))
    np.testing.assert_allclose(found["d_x"], np.broadcast_to(np.array([3, 0, 4], np.float32), X.shape))


def test_in_the_body_of_a_loop() -> None:
    x = li.input("x", ("T", 3))
    (last,), _ = li.scan(
        lambda state, row: ((unknown_gradient(state[0] + row[0], WHY),), ()), (np.zeros(3, "f4"),), (x,)
    )
    loop = li.Graph("loop", [x], {"y": last})
    np.testing.assert_allclose(li.interpret(loop, x=X)["y"], X.sum(0), rtol=1e-5)
    with pytest.raises(li.GradientError, match=WHY):
        li.vjp(loop, ["y"], ["x"])


def test_what_has_no_gradient_stays_as_it_is() -> None:
    ids = li.input("ids", (3,), "i32")
    assert unknown_gradient(ids, WHY) is ids

"""Named sizes that only an attribute has: the number of a loop's steps, without a scanned row."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ir.sizes import sizes_of


def grown(steps: str) -> li.Value:
    """A weight times 1.5, `steps` times."""
    w = li.weight("w", np.array([2.0, 3.0], np.float32))
    carry, _ = li.scan(lambda c, x: ((c[0] * 1.5,), ()), (w,), length=steps)
    assert isinstance(carry, tuple)
    assert isinstance(carry[0], li.Value)
    return carry[0]


def test_sizes_of_attributes() -> None:
    x, z = li.input("x", ("N",)), li.input("z", ("M", "K"))
    graph = li.Graph("g", [x, z], {"y": grown("M")})
    assert sizes_of(n for n in graph.nodes if n.op.name != "parameter") == {"M"}


def test_a_size_that_no_input_has_is_refused() -> None:
    with pytest.raises(li.VerifyError, match="the size M of length is in no input's shape"):
        li.verify(li.Graph("g", [li.input("x", ("N",))], {"y": grown("M")}))


def test_training_keeps_an_input_that_says_the_number_of_steps() -> None:
    """By hand: the loss is 1.5^M times the sum of w, so its slope is 1.5^M."""
    z = li.input("z", ("M", 2))
    graph = li.Graph("g", [z], {"loss": li.sum(grown("M")), "y": li.exp(z)})
    exe = li.compile(li.train_step(graph, loss="loss", optimizer=li.sgd(0.1), grads=True))
    for name in ("train", "grads"):
        assert [p.name for p in exe.entries[name].inputs] == ["z"]
    out = exe.entries["grads"](z=np.zeros((3, 2), np.float32))
    np.testing.assert_allclose(out["d_w"], [1.5**3] * 2, rtol=1e-6)
    assert out["loss"] == pytest.approx(1.5**3 * 5, rel=1e-6)

"""Names and patterns of weights: a name with brackets means itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_ir as li


def step(**options: Any) -> li.Program:
    x = li.input("x", (2,))
    a, b = li.weight("w[0]", np.ones(2, "f4")), li.weight("w0", np.ones(2, "f4"))
    groups = options.pop("groups", None)
    return li.train_step(li.Graph("g", [x], {"l": li.sum(x * a * b)}), "l", li.sgd(0.5, groups=groups), **options)


def test_a_name_with_brackets_is_trained() -> None:
    assert set(step(trainable="w[0]").state) >= {"w[0]"}
    assert "w0" not in step(trainable="w[0]").state
    assert set(step(trainable=["w[0-9]"]).state) >= {"w0"}  # a pattern, as no weight has this name
    assert "w[0]" not in step(trainable=["w[0-9]"]).state
    with pytest.raises(li.GradientError, match="no weight of graph @g matches 'W0'"):
        step(trainable="W0")


def test_a_group_of_a_name_with_brackets() -> None:
    x = np.array([1.0, 2.0], "f4")
    with li.compile(step(groups={"w[0]": {"lr": 0.25}})) as exe:
        exe.entries["train"](x=x)
        np.testing.assert_allclose(exe.state["w[0]"], 1 - 0.25 * x)
        np.testing.assert_allclose(exe.state["w0"], 1 - 0.5 * x)

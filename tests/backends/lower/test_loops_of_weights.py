"""Loops that read weights alone: their number of steps may be all that a call decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import need_target

import lstm_ir as li


def _model(steps: li.DimLike) -> li.Graph:
    """Fibonacci's numbers, a rotation of three rows, and powers that every step stacks and a product reads."""
    x = li.input("x", (steps,), "i32")
    (a, _), _ = li.scan(lambda c, _: ((c[1], c[0] + c[1]), c[0]), (_weight("a", 0.0), _weight("b", 1.0)), x)
    rows = tuple(_weight(f"row{i}", [i, i + 0.5]) for i in range(3))
    turned, _ = li.scan(lambda c, _: ((*c[1:], c[0]), c[0]), rows, x)
    _, powers = li.scan(lambda c, _: (c * 2.0, c), _weight("p", [1, 3]), x)
    table = li.dot(powers, _weight("w", [[1, 2, 3], [4, 5, 6]]))
    return li.Graph("weights", [x], {"a": a, "row": turned[1], "table": table})


def _weight(name: str, value: Any) -> li.Value:
    return li.weight(name, np.asarray(value, np.float32))


@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "loops"])
@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
@pytest.mark.parametrize("target", ["cpu", pytest.param("vulkan", marks=[pytest.mark.vulkan, pytest.mark.slow])])
def test_loops_of_weights(target: str, named: bool, kernels: bool) -> None:
    """IREE refuses such a loop where weights are prepared ("maximum iteration count exceeded")."""
    need_target(target)
    with li.compile(_model("T" if named else 4), target, options={"kernels": kernels}) as exe:
        for n in (5, 0, 1) if named else (4,):
            found = exe(x=np.zeros(n, np.int32))
            assert found["a"] == [0, 1, 1, 2, 3, 5][n]
            assert found["row"].tolist() == [(n + 1) % 3, (n + 1) % 3 + 0.5]
            powers = [[2**t, 3 * 2**t] for t in range(n)]
            table = np.asarray(powers, np.float32).reshape(n, 2) @ np.asarray([[1, 2, 3], [4, 5, 6]], np.float32)
            assert np.array_equal(found["table"], table)


@pytest.mark.parametrize("axis", [0, 1])
def test_scatters_of_weights(axis: int) -> None:
    """Nothing of a call is read, so all would be prepared at load."""
    rng = np.random.default_rng(5)
    w = li.weight("w", rng.standard_normal((17, 3)).astype(np.float32))
    rows = li.constant(rng.standard_normal((7, 3) if axis == 0 else (17, 7)).astype(np.float32))
    places = li.constant(np.array([2, 2, 0, 1, 0, 0, 2]))
    graph = li.Graph("scatters", [], {"y": li.scatter_add(w, places, rows, axis)})
    for kernels in (True, False):
        with li.compile(graph, options={"kernels": kernels, "cache": False}) as exe:
            np.testing.assert_array_equal(exe()["y"], li.interpret(graph)["y"])


@pytest.mark.parametrize("B", [1, 64])
def test_products_of_weights_are_no_work_of_a_call(B: int, seed: int) -> None:
    """One step from zeros: the state's product is made at load, so no helper takes part in it."""
    rng, H = np.random.default_rng(seed), 256
    arrays = [(rng.standard_normal((4 * H, H)) / 16).astype(np.float32) for _ in "wr"]
    x = li.input("x", (1, B, H))
    graph = li.Graph("step", [x], {"y": li.lstm(x, *map(li.weight, "wr", arrays)).y})
    with li.compile(graph, options={"helpers": "always", "cache": False}) as exe:
        loaded = exe._calls.loaded
        assert loaded is not None
        assert loaded._work["main"].published <= 1
        a = rng.standard_normal((1, B, H)).astype(np.float32)
        np.testing.assert_allclose(exe(x=a)["y"], li.interpret(graph, x=a)["y"], rtol=1e-4, atol=1e-5)

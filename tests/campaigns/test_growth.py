"""Random graphs grow to every op; their bounds notice what is wrong, and shrinking finds where."""

from __future__ import annotations

import numpy as np
import pytest
from growth import NAMES, STEPS, Growth
from growth_steps import graph
from roundoff import limits
from shrink import shrunk

import lstm_ir as li
from lstm_ir.ir.opdef import OPS


@pytest.mark.parametrize("op", sorted(OPS))
def test_every_op_is_grown(op: str, rng: np.random.Generator) -> None:
    """A step is registered for each op, and makes it, with numbers and with names for sizes."""
    for named in (False, True):
        for turn in range(300):
            g = Growth(rng, named, f"g{turn}")
            made = STEPS[op](g)
            values = () if made is None else made if isinstance(made, tuple) else (made,)
            if values and op in {n.op.name for n in li.Graph("g", g.inputs, values).nodes}:
                break
        else:
            raise AssertionError(f"the step {op} made no {op} in 300 turns, named: {named}")


@pytest.mark.parametrize("named", [False, True])
def test_graphs_are_legal(rng: np.random.Generator, named: bool) -> None:
    """They are what their text says, and the interpreter takes them."""
    for turn in range(10):
        g = Growth(rng, named, f"g{turn}")
        made = graph(g, 4)
        li.verify(made)
        given = g.arrays(g.env)
        want = li.interpret(made, given)
        far = limits(made, given, g.env, want, rng)
        assert all(far[n].worst(w, w) is None for n, w in want.items())
    assert set(g.env) == set(NAMES)


def _steps() -> li.Graph:
    x = li.input("x", (3, 4))
    y = li.tanh(li.sum(li.reverse(li.transpose(x * 2.0), 0), 1))
    return li.Graph("steps", [x], {"y": y})


def test_bounds_are_tight(rng: np.random.Generator) -> None:
    """Some units in the last place are taken, a hundred are not; what only moves is exact."""
    given = {"x": rng.uniform(0.1, 0.3, (3, 4)).astype("f4")}
    want = li.interpret(_steps(), given)
    far = limits(_steps(), given, {}, want, rng)["y"]
    assert far.worst(want["y"] * np.float32(1 + 2**-22), want["y"]) is None
    assert far.worst(want["y"] * np.float32(1 + 2**-14), want["y"]) is not None
    x = li.input("x", (3, 4))
    moved = li.Graph("moved", [x], {"y": li.reverse(x, 0)})
    turned = li.interpret(moved, given)["y"]
    assert limits(moved, given, {}, {"y": turned}, rng)["y"].worst(np.nextafter(turned, np.float32(9)), turned)


def test_a_comparison_within_rounding_is_not_held(rng: np.random.Generator) -> None:
    x = li.input("x", (2,))
    g = li.Graph("edge", [x], {"y": li.exp(x) * 3.0 > np.float32(3.0 * np.e)})
    given = {"x": np.array([1, 2], np.float32)}
    want = li.interpret(g, given)
    kept = limits(g, given, {}, want, rng)["y"].kept
    assert list(kept) == [False, True]


def test_waves_of_large_numbers_are_not_held(rng: np.random.Generator) -> None:
    x = li.input("x", (3,), "f64")
    g = li.Graph("waves", [x], {"y": li.cos(x) + 1.0})
    given = {"x": np.array([1.0, 2.0**52, 2.0**54])}
    kept = limits(g, given, {}, li.interpret(g, given), rng)["y"].kept
    assert list(kept) == [True, True, False]


def test_a_product_that_overflows_may_not_where_it_is_added_to(rng: np.random.Generator) -> None:
    """A fused multiplication gives inf where the meaning is inf less inf; without a product it is NaN."""
    x = li.input("x", (3,), "f64")
    product = li.reverse(x * 1e200, 0)
    y = {"fused": product - li.exp(x), "apart": li.exp(x) - li.exp(x), "same": product + li.exp(x)}
    g = li.Graph("overflow", [x], y)
    given = {"x": np.full(3, 1e200)}
    far = limits(g, given, {}, li.interpret(g, given), rng)
    assert {n: list(limit.kept) for n, limit in far.items()} == {
        "fused": [False] * 3,
        "apart": [True] * 3,
        "same": [True] * 3,
    }


def test_shrinking_finds_the_node() -> None:
    """What fails wherever a transposition is comes down to it."""

    def fails(g: li.Graph, arrays: dict[str, np.ndarray]) -> bool:
        return any(n.op.name == "transpose" for n in g.nodes)

    small, given = shrunk(_steps(), {"x": np.ones((3, 4), np.float32)}, fails, 60)
    assert [n.op.name for n in small.nodes] == ["parameter", "transpose"]
    assert [a.shape for a in given.values()] == [(3, 4)]

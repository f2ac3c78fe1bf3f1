"""Named sizes that no input has as an axis of its own: solved from the axes of others, or refused by name."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.ir.errors import LoweringError


def test_one_size_after_another(seed: int) -> None:
    """Only the last axis says what the one before it holds, and that what the first one holds."""
    a, b, c = li.input("a", ("A+B",)), li.input("b", ("2*B+C",)), li.input("c", ("C",))
    graph = li.Graph("g", [a, b, c], {"y": a + 1, "n": li.iota(("A",), 0, "i32"), "m": li.iota(("B",), 0, "i32")})
    rng = np.random.default_rng(seed)
    with li.compile(graph) as exe:
        for sizes in ((5, 3, 2), (1, 7, 4), (0, 1, 1)):
            A, B, C = sizes
            given = {
                n: rng.standard_normal(k).astype(np.float32) for n, k in (("a", A + B), ("b", 2 * B + C), ("c", C))
            }
            got = exe(**given)
            np.testing.assert_array_equal(got["y"], given["a"] + 1, err_msg=f"seed {seed}")
            assert got["n"].tolist() == list(range(A))
            assert got["m"].tolist() == list(range(B))


@pytest.mark.parametrize("shapes", [("B*T",), ("B*T", "T+B")], ids=["product", "sum"])
def test_sizes_that_cannot_be_solved(shapes: tuple[str, ...]) -> None:
    inputs = [li.input(f"x{i}", (s,)) for i, s in enumerate(shapes)]
    graph = li.Graph("g", inputs, {"y": li.tanh(inputs[0])})
    with pytest.raises(
        LoweringError, match=r"the size B cannot be solved from B\*T; give an input an axis of this name"
    ):
        li.compile(graph)
    with pytest.raises(li.CallError, match="do not determine B, T"):
        li.interpret(graph, {f"x{i}": np.zeros(6, np.float32) for i in range(len(shapes))})

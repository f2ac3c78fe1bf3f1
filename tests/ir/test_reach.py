"""Which values of a graph weights decide, and which depend on what a call brings."""

from __future__ import annotations

import numpy as np

import lstm_ir as li
from lstm_ir.backends.emit.derived import derived_values
from lstm_ir.ir.reach import fixed, reached, unreached

W = li.weight("w", np.ones((4, 4), np.float32))


def test_fixed_is_what_no_call_decides() -> None:
    x = li.input("x", ("B", 4))
    ranks = li.arange(4, "f32")
    held, rows = W * ranks, li.size("B")
    g = li.Graph("g", [x], [x @ held, li.convert(rows, "f32") * ranks])
    found = fixed(g)
    assert {W, ranks, held} <= found
    assert found.isdisjoint([x, rows, *g.outputs])
    assert set(g.outputs[:1]) <= fixed(g, [x])
    assert held not in fixed(g, through=lambda n: n.op.name != "multiply")


def test_a_source_ends_the_search() -> None:
    x = li.input("x", (4,))
    y = x + 1.0
    z = y * 2.0
    g = li.Graph("g", [x], [z])
    assert reached(g.nodes, [y]) == {y, z}
    assert unreached(g, [y]).isdisjoint([y, z])


def test_derived_values_are_made_of_weights() -> None:
    x = li.input("x", ("B", 4))
    literal = li.constant(np.ones((4, 4), np.float32))
    held, repeated = W * li.tanh(literal), li.broadcast_to(W[0], ("B", 4))
    g = li.Graph("g", [x], [x @ held, x + repeated, x @ li.tanh(literal)])
    row = repeated.node.inputs[0]
    assert set(derived_values(g, narrow=False)) == {held, row}

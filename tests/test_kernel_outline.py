"""Components of equal form share one function: two directions cost the text of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.kernels.text.outline import PREFIX, Outside, outlined
from lstm_ir.backends.kernels.text.text import Text
from lstm_ir.backends.targets.targets import resolve
from lstm_ir.ir.interpret import interpret

KINDS = {"%m_a": "memref<4xf32>", "%m_b": "memref<4xf32>", "%m_c": "memref<5xf32>"}


def _part(memory: str, at: int, *, twice: bool = False) -> Text:
    t = Text(4, PREFIX)
    v = t.op(f"memref.load {memory}[{t.index(at)}] : {KINDS[memory]}")
    v = t.op(f"arith.addf {v}, {v} : f32")
    if twice:
        v = t.op(f"arith.addf {v}, {v} : f32")
    t.line(f"memref.store {v}, {memory}[{t.index(0)}] : {KINDS[memory]}")
    t.line(f"memref.store {v}, {memory}[%low] : {KINDS[memory]}")
    return t


def test_names_and_constants_that_differ_are_arguments() -> None:
    functions, calls = outlined([_part("%m_a", 0), _part("%m_b", 1)], "f", KINDS)
    (text,) = functions
    zero, one = (Outside(n, "index", True) for n in "01")
    a, b = (Outside(n, KINDS[n], False) for n in ("%m_a", "%m_b"))
    low = Outside("%low", "index", False)
    assert [c.arguments for c in calls] == [(a, zero, low), (b, one, low)]
    assert "(%a0: memref<4xf32>, %a1: index, %a2: index)" in text
    assert "memref.load %a0[%a1]" in text
    assert "memref.store %w2, %a0[%c0]" in text  # 0 in both, and not the 0 that is 1 in the other
    main = Text(4)
    calls[1].write(main)
    assert main.lines == [
        "      func.call @f_0(%m_b, %c0, %low) : (memref<4xf32>, index, index) -> ()"
    ]
    assert main.constants == {("1", "index"): "%c0"}


@pytest.mark.parametrize(
    "other", [_part("%m_b", 0, twice=True), _part("%m_c", 0)], ids=["operations", "types"]
)
def test_what_differs_otherwise_is_a_function_of_its_own(other: Text) -> None:
    functions, calls = outlined([_part("%m_a", 0), other, _part("%m_b", 3)], "f", KINDS)
    assert len(functions) == 2
    assert [c.function for c in calls] == ["f_0", "f_1", "f_0"]


def _graph(cell: Any, gates: int, training: bool) -> li.Graph:
    x, lengths = li.input("x", (6, 3, 5)), li.input("n", (3,), "i32")
    w = np.random.default_rng(5).standard_normal
    shapes = (2, gates * 20, 5), (2, gates * 20, 20), (2, gates * 20)
    weights = [li.weight(f"w{i}", w(s).astype(np.float32)) for i, s in enumerate(shapes)]
    y = cell(x, *weights, direction="bidirectional", lengths=lengths)[0]
    g = li.Graph("both", [x, lengths], {"loss": li.sum(y * y)} if training else {"y": y})
    return li.grad(g, "loss", ["x"]) if training else g


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("cell", "gates"), [(li.lstm, 4), (li.gru, 3), (li.rnn, 1)])
def test_directions_share_a_function(cell: Any, gates: int, training: bool) -> None:
    """One function for each loop over steps, called twice; the same numbers as the interpreter's."""
    graph = _graph(cell, gates, training)
    text = prepare(graph, resolve("cpu")).text
    loops = 2 if training else 1
    assert text.count("func.func private @") == loops
    assert text.count("call @recurrence_") == 2 * loops
    given = {
        "x": np.random.default_rng(6).standard_normal((6, 3, 5)).astype(np.float32),
        "n": np.array([0, 6, 4], np.int32),
    }
    want = interpret(graph, given)
    with li.compile(graph) as exe:
        for name, got in exe(given).items():
            np.testing.assert_allclose(got, want[name], rtol=2e-5, atol=2e-5, err_msg=name)

"""Components of equal form share one function: two directions cost the text of one."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.kernels.text.kernel import KernelSignature
from lstm_ir.backends.kernels.text.memory import Memory
from lstm_ir.backends.kernels.text.outline import PREFIX, outlined
from lstm_ir.backends.kernels.text.statements import Constant, argument
from lstm_ir.backends.kernels.text.text import Text
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.interpret import interpret

LOW = argument("low")
SIZES = {"%m_a": 4, "%m_b": 4, "%m_c": 5}


def _memory(name: str) -> Memory:
    return Memory(name, "f32", (SIZES[name],))


def _part(memory: str, at: int, *, twice: bool = False) -> Text:
    t, m = Text(4, PREFIX), _memory(memory)
    v = m.load(t, [t.index(at)])
    v = t.binary("addf", v, v, "f32")
    if twice:
        v = t.binary("addf", v, v, "f32")
    m.store(t, v, [t.index(0)])
    m.store(t, v, [LOW])
    return t


def test_names_and_constants_that_differ_are_arguments() -> None:
    (function,), calls = outlined([_part("%m_a", 0), _part("%m_b", 1)], "_f")
    zero, one = (Constant(n, "index") for n in "01")
    a, b = _memory("%m_a").ref, _memory("%m_b").ref
    assert [c.arguments for c in calls] == [(a, zero, LOW), (b, one, LOW)]
    text = "\n".join(function.lines("k"))
    assert "@k_f_0(%a0: memref<4xf32>, %a1: index, %a2: index)" in text
    assert "memref.load %a0[%a1]" in text
    assert "memref.store %w2, %a0[%c0]" in text  # 0 in both, and not the 0 that is 1 in the other
    main = Text(4)
    main.call(calls[1])
    caller = list(main.function("", KernelSignature((), (), ())).lines("k"))
    assert caller[1:3] == [
        "%c1 = arith.constant 1 : index",
        "func.call @k_f_0(%m_b, %c1, %low) : (memref<4xf32>, index, index) -> ()",
    ]


@pytest.mark.parametrize("other", [_part("%m_b", 0, twice=True), _part("%m_c", 0)], ids=["operations", "types"])
def test_what_differs_otherwise_is_a_function_of_its_own(other: Text) -> None:
    functions, calls = outlined([_part("%m_a", 0), other, _part("%m_b", 3)], "_f")
    assert len(functions) == 2
    assert [c.function for c in calls] == ["_f_0", "_f_1", "_f_0"]


def _graph(cell: Any, gates: int, training: bool) -> li.Graph:
    x, lengths = li.input("x", (6, 3, 5)), li.input("n", (3,), "i32")
    w = np.random.default_rng(5).standard_normal
    shapes = (2, gates * 20, 5), (2, gates * 20, 20), (2, gates * 20)
    weights = [li.weight(f"w{i}", w(s).astype(np.float32)) for i, s in enumerate(shapes)]
    y = cell(x, *weights, direction="bidirectional", lengths=lengths)[0]
    g = li.Graph("both", [x, lengths], {"loss": li.sum(y * y)} if training else {"y": y})
    return li.grad(g, "loss", ["x"]) if training else g


@pytest.mark.slow_cases(cell=[li.gru, li.rnn])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("cell", "gates"), [(li.lstm, 4), (li.gru, 3), (li.rnn, 1)])
def test_directions_share_a_function(cell: Any, gates: int, training: bool) -> None:
    """One function for each loop over steps, called twice; the same numbers as the interpreter's."""
    graph = _graph(cell, gates, training)
    text = prepare(graph, resolve("cpu")).text
    loops = 2 if training else 1
    called = re.findall(r"call @(recurrence_\w+_component_\d+)\(", text)
    assert sorted(Counter(called).values()) == [2] * loops
    assert len(re.findall(r"func\.func private @recurrence_\w+_component_\d+\(", text)) == loops
    given = {
        "x": np.random.default_rng(6).standard_normal((6, 3, 5)).astype(np.float32),
        "n": np.array([0, 6, 4], np.int32),
    }
    want = interpret(graph, given)
    with li.compile(graph) as exe:
        for name, got in exe(given).items():
            np.testing.assert_allclose(got, want[name], rtol=2e-5, atol=2e-5, err_msg=name)

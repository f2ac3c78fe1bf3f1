"""A state that starts at zero is not multiplied in the first step, where weights are known to be finite."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.data import Data
from lstm_ir.ir.literals import finite

CELLS = {"lstm": (li.lstm, 4), "gru": (li.gru, 3), "rnn": (li.rnn, 1)}
I, H = 7, 19
Weights = dict[str, np.ndarray[Any, Any]]


def _weights(rng: np.random.Generator, cell: str, ways: int) -> Weights:
    gates = CELLS[cell][1]
    shapes = {"w_ih": (ways, gates * H, I), "w_hh": (ways, gates * H, H), "b": (ways, gates * H)}
    return {n: (0.4 * rng.standard_normal(s)).astype(np.float32) for n, s in shapes.items()}


def _layer(cell: str, w: Weights, T: li.Dim, B: li.Dim, **more: Any) -> li.Graph:
    op: Any = CELLS[cell][0]
    x = li.input("x", (T, B, I))
    ways = len(w["b"])
    held = [li.weight(n, a) for n, a in w.items()]
    y, *_ = op(x, *held, direction="bidirectional" if ways == 2 else "forward", **more)
    params = [x, *(v for v in more.values() if isinstance(v, li.Value) and v.op == "parameter")]
    return li.Graph(cell, params, {"y": y})


def _choices(graph: li.Graph) -> int:
    """Passes of the kernel's loops whose length the step decides."""
    text = prepare(graph, resolve("cpu")).text
    return len(re.findall(rf"arith.select %\w+, %c0, %c{H} : index", text))


def _same(graph: li.Graph, rng: np.random.Generator, sizes: list[tuple[int, int]], **given: Any) -> None:
    exe = li.compile(graph)
    for steps, rows in sizes:
        for _ in range(2):  # memory that an earlier call wrote
            call = {"x": rng.standard_normal((steps, rows, I)).astype(np.float32)}
            call |= {n: make(rows) for n, make in given.items()}
            want = li.interpret(graph, call)["y"]
            np.testing.assert_allclose(exe(call)["y"], want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
def test_values(cell: str, ways: int, rng: np.random.Generator) -> None:
    graph = _layer(cell, _weights(rng, cell, ways), "T", "B")
    _same(graph, rng, [(1, 1), (1, 5), (2, 1), (9, 3), (0, 2), (3, 0), (1, 21)])
    _same(_layer(cell, _weights(rng, cell, ways), 6, 4), rng, [(6, 4)])


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_first_step_reads_no_weights(cell: str, rng: np.random.Generator) -> None:
    """A state that is given is multiplied in every step."""
    w = _weights(rng, cell, 1)
    more = {"h0": li.input("h0", (1, "B", H))}
    if cell == "lstm":
        more["c0"] = li.input("c0", (1, "B", H))
    assert _choices(_layer(cell, w, "T", "B")) == 2  # of both variants
    assert _choices(_layer(cell, w, "T", "B", **more)) == 0


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("cell", CELLS)
def test_weights_that_are_no_numbers(cell: str, bad: float, rng: np.random.Generator) -> None:
    """0 times such a weight is NaN in the first step too."""
    w = _weights(rng, cell, 1)
    w["w_hh"][0, 3, 5] = bad
    graph = _layer(cell, w, "T", "B")
    for steps in (1, 3):
        x = rng.standard_normal((steps, 2, I)).astype(np.float32)
        got, want = li.compile(graph)(x=x)["y"], li.interpret(graph, {"x": x})["y"]
        assert np.isnan(want[0, :, 3]).all()
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


def test_a_weight_that_bf16_makes_infinite(rng: np.random.Generator) -> None:
    w = _weights(rng, "lstm", 1)
    w["w_hh"][0, 3, 5] = 3.4e38
    graph, x = _layer("lstm", w, "T", "B"), np.ones((1, 2, I), np.float32)
    assert np.isfinite(li.compile(graph)(x=x)["y"]).all()
    y = li.compile(graph, options={"precision": "bf16"})(x=x)["y"]
    assert np.isnan(y[0, :, 3]).all()
    assert np.isfinite(np.delete(y, 3, axis=2)).all()


@pytest.mark.parametrize("precision", ["f16", "bf16", "int8", "int8-dynamic"])
def test_fewer_bits(precision: str, rng: np.random.Generator) -> None:
    graph = _layer("lstm", _weights(rng, "lstm", 1), "T", "B")
    plain, exe = li.compile(graph), li.compile(graph, options={"precision": precision})
    for steps, rows in [(1, 1), (1, 6), (4, 3)]:
        x = rng.standard_normal((steps, rows, I)).astype(np.float32)
        np.testing.assert_allclose(exe(x=x)["y"], plain(x=x)["y"], atol=0.05)


@pytest.mark.parametrize("start", [0.0, -0.0, 0.5])
def test_until_ends_in_the_first_step(start: float, rng: np.random.Generator) -> None:
    """A cell of one's own, which starts from a number and may end at once."""
    w = li.weight("w", (0.3 * rng.standard_normal((H, H))).astype(np.float32))
    x = li.input("x", ("T", "B", H))
    graph = li.Graph("own", [x], dict(zip("sy", _own(w, x, start), strict=True)))
    exe = li.compile(graph)
    for steps, rows, level in [(1, 2, 0.0), (5, 1, 9.0), (5, 3, 0.0), (4, 2, -9.0)]:
        given = {"x": (rng.standard_normal((steps, rows, H)) + level).astype(np.float32)}
        got, want = exe(given), li.interpret(graph, given)
        for n, a in want.items():
            np.testing.assert_allclose(got[n], a, rtol=2e-5, atol=2e-5, err_msg=n)


def _own(w: li.Value, x: li.Value, start: float) -> tuple[li.Value, li.Value]:
    def step(s: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        new = li.tanh(row + s @ w)
        return new, new

    s, y, _ = li.scan(step, li.full(("B", H), start), x, until=lambda s, y: y[:, 0] > 0.2)
    return s, y


def test_what_is_known_to_be_finite() -> None:
    a = np.ones((3, 4), np.float32)
    bad = a.copy()
    bad[1, 2] = np.inf
    large = a.copy()
    large[0, 0] = 1e30
    given = li.input("g", (3, 4))
    good = li.weight("good", a)
    cases = {
        True: [good, li.constant(a), li.transpose(good, (1, 0)), li.concat((good, good), 0), good[1:],
               li.convert(good, "f16"), li.convert(li.convert(good, "bf16"), "f32"), li.weight("n", a.astype(np.int8)),
               li.weight("large", large), li.convert(li.weight("large", large), "bf16")],
        False: [li.weight("bad", bad), given, li.concat((good, given), 0), li.convert(given, "f16"), good + good,
                li.convert(li.weight("large", large), "f16"),
                li.convert(li.convert(li.weight("large", large), "f16"), "f32")],
    }  # fmt: skip
    for wanted, values in cases.items():
        for i, v in enumerate(values):
            assert finite(v, {}) is wanted, (wanted, i)
    p = li.input("p", (3, 4))
    assert finite(p, {p: good})
    assert not finite(p, {p: li.weight("bad", bad)})
    unread = li.weight("h", Data(None, good.type, "0" * 64))
    assert not finite(unread, {})

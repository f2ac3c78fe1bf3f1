"""Rows whose products a step needs stand first in its order: which bodies say so, and that numbers stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_checks import AVX2, BASELINE

import lstm_ir as li
from lstm_ir.backends.kernels.cpu.machine import ORDERED
from lstm_ir.backends.kernels.cpu.row_order import RowOrder

CELLS = {"lstm": (li.lstm, 4), "gru": (li.gru, 3), "rnn": (li.rnn, 1)}
I, H = 7, 19
Cell = Callable[[li.Value, Any], tuple[li.Value, li.Value]]


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operations whose results decide, of each kernel that puts rows in order."""
    found: list[str] = []
    original = RowOrder.of_step

    def seen(t: Any, e: Any, condition: Any, *more: Any) -> RowOrder:
        found.append(f"{'' if condition.holds else 'not '}{condition.atom.op}")
        return original(t, e, condition, *more)

    monkeypatch.setattr(RowOrder, "of_step", seen)
    return found


def _layer(cell: str, ways: int, T: li.Dim, B: li.Dim, rng: np.random.Generator, width: int = H) -> li.Graph:
    op, gates = CELLS[cell]
    shapes = {"w_ih": (ways, gates * width, I), "w_hh": (ways, gates * width, width), "b": (ways, gates * width)}
    w = [li.weight(n, (rng.uniform(-1, 1, s) / width**0.5).astype(np.float32)) for n, s in shapes.items()]
    x, lengths = li.input("x", (T, B, I)), li.input("lengths", (B,), "i32")
    y, *last = op(x, *w, lengths=lengths, direction="bidirectional" if ways == 2 else "forward")  # type: ignore[operator]
    return li.Graph(cell, [x, lengths], {"y": y} | {f"last{i}": v for i, v in enumerate(last)})


def _call(rng: np.random.Generator, steps: int, lengths: Any) -> dict[str, Any]:
    """Beyond its length a row has what is no number."""
    given = np.asarray(lengths, np.int32)
    x = rng.standard_normal((steps, len(given), I)).astype(np.float32)
    x[np.arange(steps)[:, None] >= given] = np.nan
    return {"x": x, "lengths": given}


def _same(exe: li.Executable, graph: li.Graph, call: dict[str, Any]) -> None:
    got = exe(call)
    for k, want in li.interpret(graph, call).items():
        np.testing.assert_allclose(got[k], want, rtol=2e-5, atol=2e-5, err_msg=k)


@pytest.mark.parametrize("device", ["local-task", "local-sync"])
@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
def test_layers_with_lengths(cell: str, ways: int, device: str, rng: np.random.Generator, orders: list[str]) -> None:
    """Of no rows, of rows of no steps, of rows that all go to the end, of any."""
    graph = _layer(cell, ways, "T", "B", rng)
    exe = li.compile(graph, device=device)
    assert set(orders) == {"compare"}
    T = 9
    for lengths in ([], [0], [T], [0, 0, 0], [T] * 14, range(T + 1), [0, T] * 9, rng.integers(0, T + 1, 41)):
        _same(exe, graph, _call(rng, T, lengths))


@pytest.mark.parametrize("target", ["cpu", AVX2, BASELINE])
def test_numbers_and_vectors_of_each_width(target: str, rng: np.random.Generator, orders: list[str]) -> None:
    graph = _layer("lstm", 2, 6, 21, rng)
    exe = li.compile(graph, target)
    assert orders
    for _ in range(5):
        _same(exe, graph, _call(rng, 6, rng.integers(0, 7, 21)))


@pytest.mark.parametrize("device", ["local-task", "local-sync"])
def test_more_rows_than_are_put_in_order(device: str, rng: np.random.Generator) -> None:
    """The others stay where they were, beside tiles that have rows of both."""
    graph = _layer("rnn", 1, "T", "B", rng)
    exe = li.compile(graph, device=device)
    for rows in (ORDERED - 1, ORDERED, ORDERED + 1, ORDERED + 7, 2 * ORDERED + 3, 3 * ORDERED):
        for lengths in (rng.integers(0, 4, rows), np.repeat([0, 3], [rows - 5, 5]), np.repeat([3, 0], [5, rows - 5])):
            _same(exe, graph, _call(rng, 3, lengths))
    numbers = _layer("rnn", 1, 3, ORDERED + 100, rng)
    _same(li.compile(numbers, device=device), numbers, _call(rng, 3, rng.integers(0, 4, ORDERED + 100)))


def test_members_that_share_a_step(rng: np.random.Generator, orders: list[str]) -> None:
    """Each has an order of its own."""
    graph = _layer("lstm", 1, "T", "B", rng, width=200)
    exe = li.compile(graph)
    assert orders
    for rows in (3, 17, 64):
        for _ in range(3):
            _same(exe, graph, _call(rng, 12, rng.integers(0, 13, rows)))


@pytest.mark.parametrize("cell", CELLS)
def test_gradients(cell: str, rng: np.random.Generator, orders: list[str]) -> None:
    """The loop back multiplies the cotangents of the same rows."""
    graph = _layer(cell, 2, "T", "B", rng)
    y = graph.outputs[0]
    seen = li.input("seen", y.type.shape)
    loss = li.Graph("loss", [*graph.params, seen], {"loss": li.sum(y * seen)})
    back = li.grad(loss, "loss", [w for w in ("w_ih", "w_hh", "b")])
    orders.clear()
    exe = li.compile(back)
    assert len(orders) >= 2
    for lengths in ([0, 5, 3], rng.integers(0, 8, 23)):
        call = _call(rng, 7, lengths)
        call["x"] = np.nan_to_num(call["x"])
        call["seen"] = rng.standard_normal((7, len(lengths), 2 * H)).astype(np.float32)
        got, wanted = exe(call), li.interpret(back, call)
        for k, want in wanted.items():
            np.testing.assert_allclose(got[k], want, rtol=2e-4, atol=2e-4 * max(1, np.abs(want).max()), err_msg=k)


def _w(seed: int, *shape: int) -> li.Value:
    return li.constant(np.random.default_rng(seed).uniform(-0.3, 0.3, shape).astype(np.float32))


def _held(h: li.Value, row: Any) -> tuple[li.Value, li.Value]:
    x, flag = row
    h = li.where(li.expand_dims(flag, 1), li.tanh(x + h @ _w(1, H, H)), h)
    return h, h


def _skipped(h: li.Value, row: Any) -> tuple[li.Value, li.Value]:
    """The other way: what is kept stands first."""
    x, flag = row
    h = li.where(li.expand_dims(flag, 1), h, li.tanh(x + h @ _w(1, H, H)))
    return h, li.where(li.expand_dims(flag, 1), 0.0, h)


def _nested(h: li.Value, row: Any) -> tuple[li.Value, li.Value]:
    """Two conditions; either one alone keeps the state."""
    x, flag = row
    new = li.where(x > 0.5, x, li.tanh(x + h @ _w(1, H, H)))
    h = li.where(li.expand_dims(flag, 1), new, h)
    return h, h * 2.0


def _read_elsewhere(h: li.Value, row: Any) -> tuple[li.Value, li.Value]:
    """The product is a result besides."""
    x, flag = row
    product = h @ _w(1, H, H)
    h = li.where(li.expand_dims(flag, 1), li.tanh(x + product), h)
    return h, product


def _by_columns(h: li.Value, row: Any) -> tuple[li.Value, li.Value]:
    """Not the row decides, but each of its numbers."""
    x, _ = row
    h = li.where(x > 0.0, li.tanh(x + h @ _w(1, H, H)), h)
    return h, h


def _by_state(h: li.Value, row: Any) -> tuple[li.Value, li.Value]:
    """What the step before computed decides: members would wait for each other to know the order."""
    x, _ = row
    small = li.less(li.max(h, 1, keepdims=True), 0.9)
    h = li.where(small, li.tanh(x + h @ _w(1, H, H)), h * 0.5)
    return h, h


BODIES: dict[str, tuple[Cell, str | None]] = {
    "held": (_held, "load"), "skipped": (_skipped, "not load"), "nested": (_nested, "load"),
    "read elsewhere": (_read_elsewhere, None), "by columns": (_by_columns, None), "by state": (_by_state, None),
}  # fmt: skip


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("word", BODIES)
def test_bodies(word: str, names: bool, rng: np.random.Generator, orders: list[str]) -> None:
    cell, condition = BODIES[word]
    B: li.Dim = "B" if names else 26
    x, flags = li.input("x", ("T", B, H)), li.input("flags", ("T", B), "i1")
    _, y = li.scan(cell, li.zeros((B, H)), (x, flags))
    graph = li.Graph("body", [x, flags], {"y": y})
    exe = li.compile(graph)
    assert [o.split()[-1] for o in dict.fromkeys(orders)] == ([] if condition is None else [condition.split()[-1]])
    assert all(o == condition for o in orders)
    for share in (0.0, 0.5, 1.0):
        call = {"x": rng.standard_normal((8, 26, H)).astype(np.float32), "flags": rng.random((8, 26)) < share}
        _same(exe, graph, call)


def test_few_rows_have_no_order(rng: np.random.Generator, orders: list[str]) -> None:
    """They are one tile."""
    li.compile(_layer("lstm", 1, "T", 2, rng))
    assert orders == []

"""Loops by columns: what keeps to its columns, every form of rows and carries, and who shares them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ops.primitive.tree import flatten


def by_columns(graph: li.Graph, target: str = "cpu") -> list[bool]:
    found = prepare(graph, resolve(target), {"kernels": True}).report.notes
    return [n.endswith(", by columns") for n in found if n.startswith("scan at")]


def arrays(graph: li.Graph, T: int, rng: np.random.Generator, B: int = 5) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, p in zip(graph.input_names, graph.params, strict=True):
        shape = tuple(d if isinstance(d, int) else {"T": T, "B": B}[str(d)] for d in p.shape)
        if name == "count":
            out[name] = np.int32(rng.integers(0, T + 1))
        else:
            out[name] = rng.standard_normal(shape).astype(p.dtype.numpy)
    return out


def check(
    graph: li.Graph, seed: int, steps: tuple[int, ...] = (11,), rows: tuple[int, ...] = (5,), **options: Any
) -> None:
    """Compiled, beside the interpreter."""
    rng = np.random.default_rng(seed)
    with li.compile(graph, options=options) as exe:
        for T, B in itertools.product(steps, rows):
            given = arrays(graph, T, rng, B)
            want, got = li.interpret(graph, given), exe(given)
            for n, w in want.items():
                assert got[n].shape == w.shape
                bound = 1e-12 if w.dtype == np.float64 else 3e-5
                np.testing.assert_allclose(
                    got[n], w, rtol=bound, atol=bound, err_msg=f"{n} of T={T}, B={B}, seed {seed}"
                )


def wkv(c: Any, x: Any) -> Any:
    a, b, top = c
    k, v = x
    new = li.maximum(top - 0.5, k)
    old, now = li.exp(top - 0.5 - new), li.exp(k - new)
    a, b = old * a + now * v, old * b + now
    return (a, b, new), (a / b, new)


def pair(c: Any, x: Any) -> Any:
    re, im = c
    re, im = 0.9 * re - 0.1 * im + x[0], 0.9 * im + 0.1 * re + x[1]
    return (re, im), re


def min_gru(h: Any, x: Any) -> Any:
    z = li.sigmoid(x[0])
    h = (1 - z) * h + z * x[1]
    return h, h


def spiking(c: Any, x: Any) -> Any:
    """Flags as a carry."""
    v, fired = c
    v = li.where(fired, li.zeros(v.shape, v.dtype), 0.8 * v) + x[0]
    fired = v > 0.7
    return (v, fired), (li.convert(fired, v.dtype.value) * x[1], v)


def of_before(c: Any, x: Any) -> Any:
    return x[0], c * x[1]


CELLS: dict[str, tuple[Callable[..., Any], int]] = {
    "min_gru": (min_gru, 1), "pair": (pair, 2), "wkv": (wkv, 3), "spiking": (spiking, 2), "of_before": (of_before, 1),
}  # fmt: skip


def graph(
    name: str, T: Any, B: Any, H: int, dtype: str = "f32", *, reverse: Any = False, counted: bool = False,
    start: bool = False,
) -> li.Graph:  # fmt: skip
    f, n = CELLS[name]
    xs = [li.input("a", (T, B, H), dtype), li.input("b", (T, B, H), dtype)]
    given: list[li.Value] = list(xs)
    more: dict[str, Any] = {}
    if counted:
        more["count"] = li.input("count", (), "i32")
        given.append(more["count"])
    carries = [li.zeros((B, H), dtype)] * n
    if name == "spiking":
        carries[1] = li.zeros((B, H), dtype) > 1
    if start:
        carries[0] = li.input("first", (B, H), dtype)
        given.append(carries[0])
    found = li.scan(f, tuple(carries) if n > 1 else carries[0], tuple(xs), reverse=reverse, **more)
    outs = [li.convert(v, dtype) if v.dtype is li.DType.i1 else v for v in flatten(found)]
    return li.Graph(name, given, outs)


@pytest.mark.parametrize("name", CELLS)
def test_named_rows(name: str, seed: int) -> None:
    """One, more than workers, none."""
    g = graph(name, "T", "B", 35, start=True)
    assert by_columns(g) == [True]
    check(g, seed, steps=(1, 9), rows=(1, 6, 0))


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize(("B", "H"), [(1, 35), (3, 16)])
def test_cells(name: str, B: int, H: int, seed: int) -> None:
    g = graph(name, "T", B, H, start=True)
    assert by_columns(g) == [True]
    check(g, seed, (0, 1, 5, 64, 65, 130))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_number_of_steps_at_run_time(reverse: bool, seed: int) -> None:
    g = graph("pair", "T", 2, 33, reverse=reverse, counted=True)
    assert by_columns(g) == [True]
    check(g, seed, (3, 9, 70, 71, 130))


def test_rows_in_both_orders_and_f64(seed: int) -> None:
    g = graph("min_gru", 13, 2, 21, "f64", reverse=[True, False, True])
    assert by_columns(g) == [True]
    check(g, seed, (13,))


def test_two_directions_are_two_components(seed: int) -> None:
    a, b = li.input("a", (9, 2, 20)), li.input("b", (9, 2, 20))

    def both(c: Any, x: Any) -> Any:
        p, q = c
        p, q = li.tanh(x[0]) * p + x[1], li.tanh(x[2]) * q + x[3]
        return (p, q), (p, q)

    z = li.zeros((2, 20))
    flags = [False, False, True, True, False, True]
    g = li.Graph("g", [a, b], flatten(li.scan(both, (z, z), (a, b, a, b), reverse=flags)))
    assert by_columns(g) == [True]
    check(g, seed, (9,))


def test_gradients_go_by_columns(seed: int) -> None:
    g = graph("min_gru", 20, 2, 24)
    total = li.sum(g.outputs[1] * g.outputs[1])
    made = li.grad(li.Graph("g", g.params, {"loss": total}), "loss", ["a", "b"])
    assert set(by_columns(made)) == {True}
    check(made, seed, (20,))


def test_products_are_made_before(seed: int) -> None:
    """minGRU with its weights: nothing but the columns is left in the loop."""
    x = li.input("x", (40, 1, 12))
    w = li.weight("w", np.random.default_rng(seed).standard_normal((12, 64)).astype(np.float32))

    def cell(h: Any, r: Any) -> Any:
        z, n = li.split(r @ w, 2, 1)
        z = li.sigmoid(z)
        h = (1 - z) * h + z * n
        return h, h

    g = li.Graph("g", [x], flatten(li.scan(cell, li.zeros((1, 32)), x)))
    assert by_columns(g) == [True]
    check(g, seed, (40,))


def test_helpers_take_columns(seed: int) -> None:
    """One row's columns are work for two, where a kernel publishes its workgroups."""
    g = graph("wkv", 300, 1, 100)
    check(g, seed, (300,), helpers="always")


@pytest.mark.parametrize("device", ["local-sync", "local-task"])
def test_one_row_and_many_workers(device: str, seed: int) -> None:
    g = graph("wkv", 70, 1, 50)
    given = arrays(g, 70, np.random.default_rng(seed))
    want = li.interpret(g, given)
    with li.compile(g, device=device) as exe:
        for _ in range(3):
            for n, a in exe(given).items():
                np.testing.assert_allclose(a, want[n], rtol=3e-5, atol=3e-5, err_msg=f"{n} {seed}")


def test_halves_that_change_places_keep_to_their_columns(seed: int) -> None:
    """A block has the same columns of both halves."""
    x = li.input("x", (9, 2, 20))
    last, _ = li.scan(lambda h, r: (li.concat([h[:, 10:], h[:, :10]], 1) * 0.5 + r, None), li.zeros((2, 20)), x)
    g = li.Graph("g", [x], {"y": last})
    assert by_columns(g) == [True]
    check(g, seed, (9,))


def test_what_does_not_keep_to_its_columns() -> None:
    x = li.input("x", (9, 2, 20))
    w = li.weight("w", np.ones((20, 20), np.float32))
    cells: list[Callable[..., Any]] = [
        lambda h, r: (li.tanh(h @ w + r), None),  # a product
        lambda h, r: (h - li.mean(h, 1, keepdims=True) + r, None),  # a sum over columns
        lambda h, r: (li.concat([h[:, 1:], r[:, :1]], 1) * 0.5 + r, None),  # other columns
    ]
    for cell in cells:
        last, _ = li.scan(cell, li.zeros((2, 20)), x)
        assert by_columns(li.Graph("g", [x], {"y": last})) == [False]
    many = [li.input(f"x{k}", (9, 2, 20)) for k in range(9)]  # each step is another page of each
    for count, so in ((7, True), (9, False)):
        _, y = li.scan(lambda h, r: ((n := 0.5 * h + sum(r, h)), n), li.zeros((2, 20)), tuple(many[:count]))
        assert by_columns(li.Graph("g", many, {"y": y})) == [so]

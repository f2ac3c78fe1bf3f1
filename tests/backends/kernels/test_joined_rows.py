"""Stacked rows that a kernel writes into one tensor: when it does, and that numbers stay what they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_checks import AVX2, BASELINE

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.kernels.call.joined_rows import JoinedRows, joined_rows
from lstm_ir.backends.kernels.cpu import dispatch
from lstm_ir.backends.run.devices import resolve

Some = tuple[li.Value, ...]
T, B, H = 6, 3, 20  # 20 columns: a vector and a rest, so parts meet inside of a vector


def compare(exe: li.Executable, graph: li.Graph, arrays: dict[str, Any], tolerance: float) -> None:
    """With the interpreter."""
    got = exe(arrays)
    for k, want in li.interpret(graph, arrays).items():
        assert got[k].dtype == want.dtype
        np.testing.assert_allclose(got[k], want, rtol=tolerance, atol=tolerance, err_msg=f"{graph.name} {k}")


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[JoinedRows]:
    """What kernels wrote together."""
    found: list[JoinedRows] = []

    def seen(*given: Any) -> list[JoinedRows]:
        joined = joined_rows(*given)
        found.extend(joined)
        return joined

    monkeypatch.setattr(dispatch, "joined_rows", seen)
    return found


def _three(x: li.Value, dtype: str = "f32") -> tuple[li.Value, li.Value, li.Value]:
    """A sum forward, one back, and products of both with what they read."""
    zero = li.zeros((x.shape[1], H), dtype)
    w = li.constant(np.random.default_rng(3).uniform(-0.2, 0.2, (H, H)).astype(zero.dtype.numpy))

    def step(carry: Some, rows: Some) -> tuple[Some, Some]:
        (a, b), (r, s) = carry, rows
        new, other = li.tanh(li.matmul(a, w) + r), b * 0.5 + s
        return (new, other), (new, other, li.matmul(s, w))

    _, rows = li.scan(step, (zero, zero), (x, x), reverse=[False, True, False, True, True])
    return rows  # type: ignore[no-any-return]


def _graph(read: Callable[..., dict[str, li.Value]], names: bool = False, dtype: str = "f32") -> li.Graph:
    x = li.input("x", ("T", "B", H) if names else (T, B, H), dtype)
    return li.Graph("rows", [x], read(*_three(x, dtype)))


def _arrays(graph: li.Graph, seed: int = 7) -> dict[str, Any]:
    dtype = graph.params[0].dtype.numpy
    return {"x": np.random.default_rng(seed).standard_normal((T, B, H)).astype(dtype)}


READ: dict[str, tuple[Callable[..., dict[str, li.Value]], list[list[int]]]] = {
    "two": (lambda a, b, c: {"y": li.concat([a, b], 2), "c": c}, [[0, 20]]),
    "the other order": (lambda a, b, c: {"y": li.concat([b, a], 2), "c": c}, [[0, 20]]),
    "all": (lambda a, b, c: {"y": li.concat([c, a, b], 2)}, [[0, 20, 40]]),
    "along rows": (lambda a, b, c: {"y": li.concat([a, b], 1), "c": c}, [[0, 3]]),
    "read on": (lambda a, b, c: {"y": li.tanh(li.concat([a, b], 2)), "c": c}, [[0, 20]]),
    "a part is an output": (lambda a, b, c: {"y": li.concat([a, b], 2), "a": a, "c": c}, []),
    "a part is read": (lambda a, b, c: {"y": li.concat([a, b], 2), "s": li.sum(a, 0), "c": c}, []),
    "one part twice": (lambda a, b, c: {"y": li.concat([a, a], 2), "b": b, "c": c}, []),
    "beside another tensor": (lambda a, b, c: {"y": li.concat([a, b, li.exp(c)], 2)}, []),
    "along steps": (lambda a, b, c: {"y": li.concat([a, b], 0), "c": c}, []),
}


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("word", READ)
def test_what_reads_the_rows(word: str, names: bool, parts: list[JoinedRows]) -> None:
    read, starts = READ[word]
    graph = _graph(read, names)
    compare(li.compile(graph), graph, _arrays(graph), 2e-5)
    want = [] if names and word == "along rows" else starts  # where a part begins has to be a number
    assert {tuple(sorted(j.starts.values())) for j in parts} == {tuple(s) for s in want}


def _five(x: li.Value) -> list[li.Value]:
    """Results of one loop, each of its own kind; the last one is wider."""
    zero = li.zeros((x.shape[1], H), "f32")
    w = li.constant(np.random.default_rng(4).uniform(-0.2, 0.2, (H, H)).astype(np.float32))

    def step(h: li.Value, r: li.Value) -> tuple[li.Value, Some]:
        new = li.tanh(r + li.matmul(h, w))
        return new, (new * h + r, new - h * r, li.tanh(new + h) * r, new * r * 2.0 - h, li.concat([new, r], 1))

    h, rows = li.scan(step, zero, x)
    return [*rows, h]


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize(
    "pairs", [[(0, 3), (1, 2)], [(0, 2), (1, 3)], [(3, 0), (2, 1)], [(1, 2)], [(0, 3)], [(1, 3), (0, 2)]]
)
def test_joins_that_lie_between_each_other(pairs: list[tuple[int, int]], names: bool, parts: list[JoinedRows]) -> None:
    """The results behind and between them stay what they are."""
    x = li.input("x", ("T", "B", H) if names else (T, B, H))
    rows = _five(x)
    joined = {f"j{i}": li.concat([rows[a], rows[b]], 2) for i, (a, b) in enumerate(pairs)}
    others = {f"y{k}": v for k, v in enumerate(rows) if not any(k in p for p in pairs)}
    graph = li.Graph("between", [x], {**joined, **others})
    compare(li.compile(graph), graph, _arrays(graph), 2e-5)
    assert len({j.node for j in parts}) >= len(pairs)


@pytest.mark.parametrize("target", [BASELINE, AVX2, "cpu"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_vectors_of_each_width(target: str, dtype: str, parts: list[JoinedRows]) -> None:
    graph = _graph(READ["all"][0], dtype=dtype)
    compare(li.compile(graph, target), graph, _arrays(graph), 2e-5 if dtype == "f32" else 1e-11)
    assert parts


def test_rows_in_lanes(parts: list[JoinedRows]) -> None:
    """Narrow rows of a named size: a call of many has rows for lanes, whose parts are scattered."""
    x = li.input("x", ("T", "B", 3))
    zero = li.zeros(("B", 3), "f32")

    def step(carry: Some, r: li.Value) -> tuple[Some, Some]:
        new, other = li.sin(carry[0] + r), carry[1] * 0.5 - r
        return (new, other), (new, other)

    _, (up, down) = li.scan(step, (zero, zero), x, reverse=[False, False, True])
    graph = li.Graph("narrow", [x], {"y": li.concat([down, up], 2)})
    exe = li.compile(graph)
    for rows in (1, 3, 40):
        compare(exe, graph, {"x": np.random.default_rng(rows).standard_normal((4, rows, 3), np.float32)}, 2e-5)
    assert parts


@pytest.mark.parametrize("dtype", ["i1", "u32", "i8"])
def test_elements_that_kernels_keep_otherwise(dtype: str, parts: list[JoinedRows]) -> None:
    x = li.input("x", ("T", B, H))

    def step(a: li.Value, r: li.Value) -> tuple[li.Value, Some]:
        new = a * 0.5 + r
        flags = li.less(new, 0.25)
        return new, (li.convert(flags, dtype), li.convert(li.less(r, a), dtype))

    _, (one, other) = li.scan(step, li.zeros((B, H), "f32"), x)
    graph = li.Graph("flags", [x], {"y": li.concat([one, other], 2)})
    compare(li.compile(graph), graph, _arrays(graph), 0)
    assert parts


def test_steps_that_do_not_run_are_zero(parts: list[JoinedRows]) -> None:
    x, n = li.input("x", ("T", B, H)), li.input("n", (), "i32")
    zero = li.zeros((B, H), "f32")
    _, (up, down) = li.scan(lambda a, r: (a + r, (a * r, a - r)), zero, x, count=n)
    graph = li.Graph("counted", [x, n], {"y": li.concat([up, down], 2)})
    exe = li.compile(graph)
    for count in range(T + 1):
        compare(exe, graph, _arrays(graph) | {"n": np.array(count, np.int32)}, 2e-5)
    assert parts


@pytest.mark.parametrize("layer", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("device", ["local-sync", "local-task"])
def test_layers_both_ways(layer: str, device: str, parts: list[JoinedRows]) -> None:
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[layer]
    rng = np.random.default_rng(11)
    x, lengths, y = li.input("x", ("T", "B", 7)), li.input("lengths", ("B",), "i32"), None
    for k, width in enumerate((7, 26)):
        shapes = {"w": (2, gates * 13, width), "r": (2, gates * 13, 13), "b": (2, gates * 13)}
        w = [li.weight(f"{n}{k}", rng.uniform(-0.4, 0.4, s).astype(np.float32)) for n, s in shapes.items()]
        y = getattr(li, layer)(x if y is None else y, *w, direction="bidirectional", lengths=lengths)[0]
    assert y is not None
    graph = li.Graph("stack", [x, lengths], {"y": y})
    exe = li.compile(graph, device=device)
    for rows in (1, 2, 5):
        some = {
            "x": rng.standard_normal((T, rows, 7), np.float32),
            "lengths": rng.integers(0, T + 1, rows).astype(np.int32),
        }
        compare(exe, graph, some, 2e-5)
    assert {tuple(j.starts.values()) for j in parts} == {(0, 13)}


@pytest.mark.parametrize("names", [False, True])
def test_nothing_is_copied(names: bool) -> None:
    """No op of the module joins the rows, where one does for rows that something else reads."""
    joins = re.compile(r"tensor\.insert_slice|stablehlo\.concatenate")
    two, apart = (prepare(_graph(READ[k][0], names), resolve("cpu")).text for k in ("two", "a part is an output"))
    assert not joins.search(two)
    assert joins.search(apart)

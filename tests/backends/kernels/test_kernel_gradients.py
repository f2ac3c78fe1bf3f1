"""Gradients of cells that no library has are kernels too; rows that read each other's are, but in pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_bodies import BODIES, Loop
from paths import DOCS

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.passes.pipeline import Pipeline
from lstm_ir.passes.pipelines import NAMED

FEW = ("masked", "normalised", "heads", "over_heads", "column_of_another")
WITHOUT = ",".join(p.name for p in Pipeline.parse(NAMED["default"]).passes if p.name != "join-rows")


def normed_lstm(T: Any, B: Any, I: int, H: int, *, lengths: bool) -> li.Graph:
    """Gradients of an LSTM with three layer norms, whose forward loop saves 19 tensors."""
    rng = np.random.default_rng(5)
    shapes = {"w": (I, 4 * H), "r": (H, 4 * H), "sx": (4 * H,), "sh": (4 * H,), "sc": (H,)}
    w = {n: li.weight(n, rng.uniform(-0.5, 0.5, s).astype("f")) for n, s in shapes.items()}
    x = li.input("x", (T, B, I))
    inputs = [x, li.input("n", (B,), "i32")] if lengths else [x]

    def normed(v: li.Value, scale: li.Value) -> li.Value:
        v = v - li.mean(v, axis=1, keepdims=True)
        return v * li.rsqrt(li.mean(v * v, axis=1, keepdims=True) + 1e-5) * scale

    def cell(carry: Any, row: li.Value, w: Any) -> Any:
        h, c = carry
        a = normed(row @ w["w"], w["sx"]) + normed(h @ w["r"], w["sh"])
        i, f, g, o = (a[:, k * H : (k + 1) * H] for k in range(4))
        c = li.logistic(f) * c + li.logistic(i) * li.tanh(g)
        h = li.logistic(o) * li.tanh(normed(c, w["sc"]))
        return (h, c), h

    zero = li.zeros((x.shape[1], H))
    more: dict[str, Any] = {"lengths": inputs[1]} if lengths else {}
    _, y = li.scan(cell, (zero, zero), x, (w,), **more)
    g = li.Graph("normed", inputs, {"y": y, "loss": li.sum(y * y)})
    return li.grad(g, "loss", ["x", *g.weights])


def _loops(graph: li.Graph, options: dict[str, Any] | None = None) -> list[str]:
    """Why loops have no kernel."""
    return [n for n in prepare(graph, resolve("cpu"), options).report.notes if ": loop" in n]


def _compare(got: dict[str, Any], want: dict[str, Any], tolerance: float) -> None:
    for name, w in want.items():
        largest = max(1.0, np.abs(w).max(initial=0.0))
        assert np.abs(got[name] - w).max(initial=0.0) <= tolerance * largest, name


@pytest.mark.parametrize("name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in BODIES])
def test_gradients_of_bodies_are_kernels(name: str, kernels: bool, seed: int) -> None:
    loop = Loop(("T", "B", 5, 7), np.random.default_rng(seed), "f64")
    out = BODIES[name](loop)
    parts = [li.sum(v * v) for v in out.values() if v.dtype.is_float]
    loss = parts[0]
    for p in parts[1:]:
        loss = loss + p
    g = li.Graph(name, loop.inputs, {"loss": loss})
    floats = [p.node.attrs["name"] for p in g.params if p.dtype.is_float]
    both = li.grad(g, "loss", [*floats, *g.weights])
    if kernels:
        assert _loops(both) == []
    exe = li.compile(both)
    for T, B in ((6, 3), (1, 4)):
        arrays = loop.arrays(g, T, B)
        _compare(exe(**arrays), li.interpret(both, arrays), 1e-11)


@pytest.mark.parametrize(
    ("sizes", "lengths"),
    [
        ((7, 5), False),
        pytest.param((9, 18), True, marks=pytest.mark.slow),
        pytest.param(("T", "B"), True, marks=pytest.mark.slow),
    ],
)
def test_gradients_of_a_normed_lstm_are_kernels(
    sizes: tuple[Any, Any], lengths: bool, kernels: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    g = normed_lstm(*sizes, 6, 20, lengths=lengths)
    if kernels:
        count = len(_loops(g, {"pipeline": WITHOUT}))
        assert count > 0
        assert _loops(g) == []
        row = f"| `join-rows` | gradient of a normed cell | loops without a kernel | {count} | 0 |"
        assert lengths or row in (DOCS / "passes.md").read_text()
    exe = li.compile(g)
    for T, B in [(7, 5), (9, 18), (1, 1), (4, 33)] if "T" in sizes else [sizes]:
        arrays = {"x": rng.standard_normal((T, B, 6)).astype("f")}
        if lengths:
            arrays["n"] = rng.integers(0, T + 1, B).astype("i4")
        _compare(exe(**arrays), li.interpret(g, arrays), 3e-5)


def _one_row(h: li.Value, x: li.Value, w: li.Value) -> Any:
    h = li.tanh(h @ w + x + li.broadcast_to(h[2:3], h.shape))
    return h, h


def _numbers(carry: Any, x: li.Value, w: li.Value) -> Any:
    h, n = carry
    h = li.tanh(h @ w + x + li.broadcast_to(li.reshape(n[3:4], (1, 1)), h.shape))
    return (h, li.sum(h, 1) * 0.1), h


def _turned(h: li.Value, x: li.Value, w: li.Value) -> Any:
    """Row r of the leading index i reads row i of r."""
    h = li.tanh(li.dot_general(h, w, ((2,), (0,))) + x + li.transpose(h, (1, 0, 2)))
    return h, h


def _one_number(carry: Any, x: li.Value, w: li.Value) -> Any:
    h, size = carry
    h = li.tanh(h @ w + x * size)
    return (h, li.mean(h) + 1.0), h


@pytest.mark.parametrize(
    ("cell", "shapes", "kernel"),
    [
        (_one_row, [(32, 40)], True), (_numbers, [(32, 40), (32,)], True), (_turned, [(16, 16, 40)], False),
        (_one_number, [(32, 40), ()], True),
    ],
)  # fmt: skip
def test_rows_that_read_rows_of_others(
    rng: np.random.Generator, cell: Any, shapes: list[tuple[int, ...]], kernel: bool
) -> None:
    """A known row, or a number of all; where each reads another one there is no kernel."""
    w = li.weight("w", rng.uniform(-0.2, 0.2, (40, 40)).astype("f"))
    x = li.input("x", (12, *shapes[0]))
    init = tuple(li.zeros(s) for s in shapes)
    g = li.Graph("mixed", [x], {"y": li.scan(cell, init if len(init) > 1 else init[0], x, (w,))[1]})
    assert (_loops(g) == []) == kernel
    assert kernel or "rows meet each other in pairs" in " ".join(_loops(g))
    a = rng.standard_normal(x.shape).astype("f")
    got = li.compile(g, device="local-task")(x=a)["y"]
    np.testing.assert_allclose(got, li.interpret(g, x=a)["y"], rtol=2e-4, atol=2e-4)


def test_a_single_row_may_read_itself(rng: np.random.Generator) -> None:
    T, H = 5, 24
    w = li.weight("w", rng.uniform(-0.3, 0.3, (H, H)).astype("f"))
    x = li.input("x", (T, 1, H))

    def cell(h: li.Value, x: li.Value, w: li.Value) -> Any:
        h = li.tanh(h @ w + x + li.broadcast_to(h[0:1], h.shape) * 0.5)
        return h, h

    g = li.Graph("single", [x], {"y": li.scan(cell, li.zeros((1, H)), x, (w,))[1]})
    assert _loops(g) == []
    a = rng.standard_normal((T, 1, H)).astype("f")
    got, want = li.compile(g)(x=a)["y"], li.interpret(g, x=a)["y"]
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)

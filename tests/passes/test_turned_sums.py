"""`turn-bodies` where a state's last axis is summed: columns are an axis as wide along which nothing meets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.targets.targets import resolve
from lstm_ir.ir.graph import Graph
from lstm_ir.passes.pipeline import Pipeline

CPU = resolve("cpu").info
Body = Callable[[li.Value, tuple[li.Value, ...]], tuple[li.Value, li.Value]]


def delta(S: li.Value, row: tuple[li.Value, ...]) -> tuple[li.Value, li.Value]:
    """Reads and corrections along the last axis."""
    k, v, q, a = row
    held = li.sum(S * k[..., None, :], 3)
    S = a[..., None, None] * S + (v - held)[..., None] * k[..., None, :]
    return S, li.sum(S * q[..., None, :], 3)


def with_normaliser(state: tuple[li.Value, ...], row: tuple[li.Value, ...]) -> tuple[tuple[li.Value, ...], li.Value]:
    """A number for each head beside the state."""
    S, n = state
    S, y = delta(S, row)
    n = li.maximum(n * 0.9, li.sum(S * S, (2, 3)))
    return (S, n), y / (1.0 + n[..., None])


def graph(body: Body, keys: int, values: int, more: tuple[int, ...] = ()) -> Graph:
    """T, B and 2 heads; a state [values, keys] for each, and perhaps one more."""
    heads = ("T", "B", 2)
    rows = [li.input(n, (*heads, d)) for n, d in (("k", keys), ("v", values), ("q", keys))] + [li.input("a", heads)]
    init = [li.zeros(("B", 2, values, keys)), *([li.zeros(("B", *more))] if more else [])]
    last, y = li.scan(body, tuple(init) if more else init[0], tuple(rows))
    return Graph("g", rows, {"y": y} | {f"last{i}": v for i, v in enumerate(last if more else [last])})


@pytest.mark.parametrize(
    ("body", "keys", "values", "carried"),
    [
        (delta, 17, 23, (17, 23)),
        (delta, 17, 17, (17, 17)),
        (delta, 23, 17, (17, 23)),  # fewer columns are not worth it
    ],
)
def test_columns_are_an_axis_that_is_not_summed(body: Body, keys: int, values: int, carried: tuple[int, ...]) -> None:
    turned = Pipeline.parse("turn-bodies").run(graph(body, keys, values), CPU).graph
    (loop,) = (n for n in turned.nodes if n.op.name == "scan")
    assert loop.types[0].shape[2:] == carried
    assert ("turn-bodies" in loop.loc.via) == (keys <= values)


@pytest.mark.parametrize(("keys", "values"), [(16, 16), (16, 21), (21, 16)])
@pytest.mark.parametrize(("body", "more"), [(delta, ()), (with_normaliser, (2,))])
def test_values(body: Body, more: tuple[int, ...], keys: int, values: int, seed: int) -> None:
    g, r = graph(body, keys, values, more), np.random.default_rng(seed)
    with li.compile(g) as exe:
        assert all("kernel" in n for n in exe.report.notes if n.startswith("scan at"))
        for T, B in ((6, 3), (1, 1), (0, 2)):
            shapes = {n: (T, B, *p.shape[2:]) for n, p in zip(g.input_names, g.params, strict=True)}
            given = {n: 0.3 * r.standard_normal(s).astype("f4") for n, s in shapes.items()}
            given["a"] = r.uniform(0.5, 1, (T, B, 2)).astype("f4")
            got, want = exe(given), li.interpret(g, given)
            for name, w in want.items():
                np.testing.assert_allclose(got[name], w, rtol=2e-5, atol=2e-6)

"""`turn-bodies` where a state's last axis is summed: columns are an axis as wide along which nothing meets.

And the chunks of rows in which the kernels of such loops run.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.kernels.body.planner import make_plan
from lstm_ir.backends.kernels.cpu import schedule
from lstm_ir.backends.run.devices import resolve
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


def gated(state: tuple[li.Value, ...], row: tuple[li.Value, ...]) -> tuple[tuple[li.Value, ...], li.Value]:
    """A gate that is repeated along keys and along values, as mLSTM's, and a vector of keys beside the matrix."""
    (S, n), (k, v, q, a) = state, row
    gate = li.broadcast_in_dim(a, k.shape, (0, 1)) if k.shape == v.shape else None
    to_k, to_v = (gate, gate) if gate is not None else (a[..., None], a[..., None])
    S = a[..., None, None] * S + (to_v * v)[..., None] * k[..., None, :]
    n = a[..., None] * n + to_k * k
    return (S, n), li.sum(S * q[..., None, :], 3) / (1.0 + li.abs(li.sum(n * q, 2, keepdims=True)))


def graph(
    body: Body, keys: int, values: int, more: tuple[int, ...] = (), heads: int = 2, rows: int | str = "B"
) -> Graph:
    """A state [values, keys] for each head, and perhaps one more."""
    lead = ("T", rows, heads)
    xs = [li.input(n, (*lead, d)) for n, d in (("k", keys), ("v", values), ("q", keys))] + [li.input("a", lead)]
    init = [li.zeros((rows, heads, values, keys)), *([li.zeros((rows, *more))] if more else [])]
    last, y = li.scan(body, tuple(init) if more else init[0], tuple(xs))
    return Graph("g", xs, {"y": y} | {f"last{i}": v for i, v in enumerate(last if more else [last])})


def agree(exe: li.Executable, g: Graph, T: int, B: int, r: np.random.Generator) -> None:
    shapes = {n: (T, B, *p.shape[2:]) for n, p in zip(g.input_names, g.params, strict=True)}
    given = {n: 0.3 * r.standard_normal(s).astype("f4") for n, s in shapes.items()}
    given["a"] = r.uniform(0.5, 1, shapes["a"]).astype("f4")
    got, want = exe(given), li.interpret(g, given)
    for name, w in want.items():
        np.testing.assert_allclose(got[name], w, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize(
    ("body", "more", "keys", "values", "carried"),
    [
        (delta, (), 17, 23, (17, 23)),
        (delta, (), 17, 17, (17, 17)),
        (delta, (), 23, 17, (17, 23)),  # fewer columns are not worth it
        (gated, (2, 17), 17, 17, (17, 17)),
    ],
)
def test_columns_are_an_axis_that_is_not_summed(
    body: Body, more: tuple[int, ...], keys: int, values: int, carried: tuple[int, ...]
) -> None:
    turned = Pipeline.parse("turn-bodies").run(graph(body, keys, values, more), CPU).graph
    (loop,) = (n for n in turned.nodes if n.op.name == "scan")
    assert loop.types[0].shape[2:] == carried
    assert ("turn-bodies" in loop.loc.via) == (keys <= values)


@pytest.mark.parametrize(("keys", "values"), [(16, 16), (16, 21), (21, 16)])
@pytest.mark.parametrize(
    ("body", "more", "heads"), [(delta, (), 2), (delta, (), 21), (with_normaliser, (2,), 2), (gated, (2, -1), 2)]
)
def test_values(body: Body, more: tuple[int, ...], heads: int, keys: int, values: int, seed: int) -> None:
    g = graph(body, keys, values, tuple(keys if d < 0 else d for d in more), heads)
    r = np.random.default_rng(seed)
    with li.compile(g) as exe:
        (note,) = (n for n in exe.report.notes if n.startswith("scan at"))
        assert ": kernel" in note
        for T, B in ((6, 3), (1, 1), (0, 2)):
            agree(exe, g, T, B, r)


@pytest.mark.parametrize(("rows", "resident"), [("B", 2), (3, 2), (7, 2), (8, 3)])
def test_rows_in_chunks(rows: int | str, resident: int, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """More chunks than workers, and rows that do not fill them."""
    g, r = graph(delta, 16, 16, rows=rows), np.random.default_rng(seed)
    monkeypatch.setattr(schedule, "_resident", lambda plan, target: resident)
    with li.compile(g, options={"cache": False}) as exe:
        for B in (rows,) if isinstance(rows, int) else (0, 1, 3, 41):
            agree(exe, g, 5, B, r)


@pytest.mark.parametrize(
    ("shape", "axis", "wanted"),
    [
        (("B", 4, 64, 64), 2, 2),
        (("B", 4, 8, 16), 2, 64),
        (("B", 16, 64, 64), 2, 0),  # not one
        ((16, "B", 128), 0, 16),  # rows last but one
        ((16, 64, 128), 0, 16),
    ],
)
def test_resident_rows(shape: tuple[int | str, ...], axis: int, wanted: int) -> None:
    """Half of an L2 of 512 KiB holds two copies of each carry."""
    x = li.input("x", ("T", *shape))

    def cell(s: li.Value, x: li.Value) -> tuple[li.Value, li.Value]:
        s = s * 0.5 + x
        return s, li.sum(s, axis)

    _, y = li.scan(cell, li.zeros(shape), x)
    (loop,) = (n for n in li.Graph("g", [x], {"y": y}).nodes if n.op.name == "scan")
    info = resolve("cpu:x86-64-v3").info._replace(l2_bytes=512 << 10)
    assert schedule.choose(make_plan(loop, False), info).resident == wanted

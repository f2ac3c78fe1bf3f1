"""Loops of narrow rows: the rows of a vector's lanes, gathered and scattered, against the meaning of each op."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_checks import AVX2, BASELINE

import lstm_ir as li
from lstm_ir.backends.kernels.cpu import schedule

ROWS = (2, 7, 16, 17, 40)
Size = int | str
LEAST = 2  # rows of a call that are not one alone


def _weight(name: str, *shape: int) -> li.Value:
    r = np.random.default_rng(len(name) + sum(shape))
    return li.weight(name, r.standard_normal(shape).astype(np.float32) * 0.3)


def filter_of_states(B: Size, T: Size = "T", n: int = 3, m: int = 2) -> li.Graph:
    """A Kalman filter: products of small matrices that differ from row to row."""
    F, H = _weight("F", n, n), _weight("H", m, n)
    z, x0, P0 = li.input("z", (T, B, m)), li.input("x0", (B, n)), li.input("P0", (B, n, n))
    Q, R = li.constant(0.05 * np.eye(n, dtype=np.float32)), li.constant(0.5 * np.eye(m, dtype=np.float32))

    def cell(s: Any, z: li.Value, F: li.Value, H: li.Value) -> Any:
        x, P = s
        x = x @ li.swapaxes(F, 0, 1)
        P = li.einsum("ij,bjk,lk->bil", F, P, F) + Q
        seen = li.einsum("bij,mj->bim", P, H)
        S = li.einsum("mi,bin->bmn", H, seen) + R
        det = S[:, 0, 0] * S[:, 1, 1] - S[:, 0, 1] * S[:, 1, 0]
        rows = [li.stack([S[:, 1, 1], -S[:, 0, 1]], 1), li.stack([-S[:, 1, 0], S[:, 0, 0]], 1)]
        gain = li.einsum("bim,bmn->bin", seen, li.stack(rows, 1) / det[:, None, None])
        x = x + li.einsum("bim,bm->bi", gain, z - x @ li.swapaxes(H, 0, 1))
        return (x, P - li.einsum("bim,bjm->bij", gain, seen)), x

    (x, P), xs = li.scan(cell, (x0, P0), z, (F, H))
    return li.Graph("filter", [z, x0, P0], {"x": x, "P": P, "xs": xs})


def decayed_sum(B: Size) -> li.Graph:
    """A number for each row, as returns of a policy: the rows of every tensor lie side by side."""
    r, g, s0, n = li.input("r", ("T", B)), li.input("g", ("T", B)), li.input("s", (B,)), li.input("n", (), "i32")
    last, every = li.scan(lambda s, at: (at[0] + 0.9 * at[1] * s,) * 2, s0, (r, g), reverse=True, count=n)
    return li.Graph("decayed", [r, g, s0, n], {"last": last, "every": every})


def flags_and_counts(B: Size) -> li.Graph:
    """Carries that are flags and integers."""
    x = li.input("x", ("T", B, 3))

    def cell(s: Any, x: li.Value) -> Any:
        seen, count = s
        seen = seen | (x > 1.2)
        return (seen, count + li.convert(x > 0, "i32") * 2 - 1), li.where(seen, li.convert(count, "f32"), x)

    start = (li.zeros((B, 3), "i1"), li.zeros((B, 3), "i32"))
    (seen, count), ys = li.scan(cell, start, x)
    return li.Graph("flags", [x], {"seen": seen, "count": count, "ys": ys})


def sums_of_columns(B: Size) -> li.Graph:
    """Sums over columns, then all columns again."""
    x, s0 = li.input("x", ("T", B, 5)), li.input("s", (B, 5))

    def cell(s: li.Value, x: li.Value) -> Any:
        p = li.softmax(s + x, 1)
        s = li.tanh(s * 0.5 + x) * p + li.sum(s * s, 1, keepdims=True) * 0.1
        return s, (p[:, 1:4], li.mean(s, 1))

    s, (p, m) = li.scan(cell, s0, x)
    return li.Graph("columns", [x, s0], {"s": s, "p": p, "m": m})


def extremes(B: Size) -> li.Graph:
    """Extremes over columns, of numbers and integers."""
    x, k, s0 = li.input("x", ("T", B, 5)), li.input("k", ("T", B, 5), "i32"), li.input("s", (B, 5))

    def cell(s: Any, at: Any) -> Any:
        (s, n), (x, k) = s, at
        s, n = li.tanh(s + x) + li.max(s, 1, keepdims=True) * 0.1, n * 3 - k
        return (s, n), (li.min(s, 1), li.sum(n, 1), li.max(n, 1))

    (s, n), (least, total, most) = li.scan(cell, (s0, li.zeros((B, 5), "i32")), (x, k))
    return li.Graph("extremes", [x, k, s0], {"s": s, "n": n, "least": least, "total": total, "most": most})


def both_ways(B: Size) -> li.Graph:
    """Three units in both directions: two components, products with weights, sequences of their own lengths."""
    x, n = li.input("x", ("T", B, 2)), li.input("n", (B,), "i32")
    w = [_weight("w_ih", 2, 12, 2), _weight("w_hh", 2, 12, 3), _weight("b", 2, 12)]
    y, h, c = li.lstm(x, *w, direction="bidirectional", lengths=n)
    return li.Graph("both", [x, n], {"y": y, "h": h, "c": c})


def rows_second(B: Size) -> li.Graph:
    """Rows stand on the second axis, behind indices that a loop counts; every element is stored."""
    x, s0 = li.input("x", ("T", 4, B, 3)), li.input("s", (4, B, 3))

    def cell(s: li.Value, x: li.Value) -> Any:
        s = s * li.sigmoid(x) + li.sum(x, 0, keepdims=True)
        return s, s * 2.0

    s, ys = li.scan(cell, s0, x)
    return li.Graph("second", [x, s0], {"s": s, "ys": ys})


def of_type(dtype: str) -> Callable[[Size], li.Graph]:
    """Elements of another width: scanned, carried and stored."""

    def graph(B: Size) -> li.Graph:
        x, s0 = li.input("x", ("T", B, 3), dtype), li.input("s", (B, 3), dtype)
        s, ys = li.scan(lambda s, x: (s * 0.5 + x,) * 2, s0, x)
        return li.Graph(dtype, [x, s0], {"s": s, "ys": ys})

    return graph


BODIES: dict[str, Callable[[Size], li.Graph]] = {
    "filter": filter_of_states,
    "decayed": decayed_sum,
    "flags": flags_and_counts,
    "columns": sums_of_columns,
    "extremes": extremes,
    "both": both_ways,
    "second": rows_second,
    "f64": of_type("f64"),
    "f16": of_type("f16"),
    "bf16": of_type("bf16"),
}
GRADIENTS = ("filter", "decayed", "columns", "both", "second", "f64")
TOLERANCE = {"f64": 1e-12, "f16": 2e-3, "bf16": 2e-2}


def _arrays(g: li.Graph, T: int, B: int, rng: np.random.Generator) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, v in zip(g.input_names, g.params, strict=True):
        shape = [{"T": T, "B": B}.get(str(d), d) for d in v.shape]
        out[name] = (rng.standard_normal(shape) * (1 if v.dtype.is_float else 9)).astype(v.dtype.numpy)
        if name == "P0":  # a covariance
            out[name] = (np.einsum("bij,bkj->bik", out[name], out[name]) + np.eye(shape[1])).astype(np.float32)
        if name == "n":
            out[name] = rng.integers(0, T + 1, shape, np.int32)
    return out


def _gradient(g: li.Graph) -> li.Graph:
    loss = li.sum(li.stack([li.sum(v * v) for v in g.outputs], 0))
    inputs = [n for n, v in zip(g.input_names, g.params, strict=True) if v.dtype.is_float]
    return li.grad(li.Graph(g.name, list(g.params), {"loss": loss}), "loss", inputs)


def _held(g: li.Graph, rows: tuple[int, ...], rng: np.random.Generator, tolerance: float) -> list[str]:
    """Compares calls of so many rows with the meaning; gives what was chosen for each loop."""
    with li.compile(g, options={"cache": False}) as exe:
        for B in rows:
            for T in (0, 1, 9):
                arrays = _arrays(g, T, B, rng)
                want, got = li.interpret(g, arrays), exe(arrays)
                for name, w in want.items():
                    assert got[name].dtype == w.dtype
                    a, b = (v.astype(np.float64) for v in (got[name], w))
                    largest = max(1.0, np.abs(b).max(initial=0.0))
                    np.testing.assert_allclose(a / largest, b / largest, rtol=0, atol=tolerance, err_msg=f"{name} {B}")
        return [n for n in exe.report.notes if n.startswith("scan at")]


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever rows can be lanes they are, however many there are."""
    monkeypatch.setattr(schedule, "paying_rows", lambda *_: LEAST)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("rows", ROWS)
def test_bodies_are_right_at_any_number_of_rows(body: str, rows: int, rng: np.random.Generator) -> None:
    notes = _held(BODIES[body](rows), (rows,), rng, TOLERANCE.get(body, 2e-5))
    others = ["by columns"] if body == "decayed" else []  # its rows are columns, where their number is known
    assert notes
    assert all(any(way in n for way in ("rows in lanes", *others)) for n in notes)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("body", BODIES)
def test_named_rows_choose_at_the_call(body: str, rng: np.random.Generator) -> None:
    notes = _held(BODIES[body]("B"), (0, 1, *ROWS), rng, TOLERANCE.get(body, 2e-5))
    assert all(f"from {LEAST} rows on" in n and "rows in lanes" in n for n in notes)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("body", GRADIENTS)
@pytest.mark.parametrize("rows", [17, "B"])
def test_gradients_are_right(body: str, rows: Size, rng: np.random.Generator) -> None:
    calls = (rows,) if isinstance(rows, int) else (3, 33)
    notes = _held(_gradient(BODIES[body](rows)), calls, rng, TOLERANCE.get(body, 1e-4))
    assert body == "decayed" or any("rows in lanes" in n for n in notes)


@pytest.mark.parametrize("processor", [BASELINE, AVX2])
def test_narrow_vectors(processor: str, rng: np.random.Generator, everywhere: None) -> None:
    for body in BODIES.values():
        g = body(11)
        with li.compile(g, processor) as exe:
            arrays = _arrays(g, 6, 11, rng)
            for name, w in li.interpret(g, arrays).items():
                np.testing.assert_allclose(
                    exe(arrays)[name].astype(np.float64), w.astype(np.float64), rtol=2e-2, atol=2e-2, err_msg=g.name
                )


@pytest.mark.usefixtures("everywhere")
def test_two_loops_of_one_condition(rng: np.random.Generator) -> None:
    """IREE would make one branch of both, and read a result at another one's place."""
    x, s0 = li.input("x", ("T", "B", 6)), li.input("s", ("B", 6))
    first, rows = li.scan(lambda s, x: (s * 0.25 + x, s - x), s0, x)
    last, out = li.scan(lambda s, r: (s * 0.5 + r * r, s + r), s0, rows, reverse=[True, False])
    _held(li.Graph("two", [x, s0], {"first": first, "rows": rows, "last": last, "out": out}), (1, 3, 16, 20), rng, 2e-5)


def _chosen(g: li.Graph) -> str:
    with li.compile(g) as exe:
        (note,) = [str(n) for n in exe.report.notes if n.startswith("scan at")]
    return note


def _sum(B: Size, width: int) -> li.Graph:
    x, s0 = li.input("x", ("T", B, width)), li.input("s", (B, width))
    s, _ = li.scan(lambda s, x: (li.tanh(s * li.sigmoid(s) + x) * li.mean(s, 1, keepdims=True), None), s0, x)
    return li.Graph("sum", [x, s0], {"s": s})


def test_narrow_rows_alone_are_lanes() -> None:
    """Of four columns a vector of sixteen has a quarter; of 64 it has all."""
    assert "rows in lanes" in _chosen(_sum(64, 4))
    assert "rows in lanes" not in _chosen(_sum(64, 64))
    assert "rows in lanes" not in _chosen(_sum(2, 4))
    assert "rows on, rows in lanes" in _chosen(_sum("B", 4))


def test_values_that_decide_are_summed_in_one_order() -> None:
    """A spike is the same in all loops that compute it: of their sums over columns one may not be in lanes."""
    x, s0 = li.input("x", ("T", 64, 3)), li.input("s", (64, 3))

    def cell(s: li.Value, x: li.Value) -> Any:
        s = s * 0.9 + x + li.mean(s, 1, keepdims=True)
        spike = li.convert(s > 1.0, "f32")
        return s - spike, spike

    s, spikes = li.scan(cell, s0, x)
    g = li.Graph("spikes", [x, s0], {"loss": li.sum(s * s) + li.sum(spikes)})
    with li.compile(li.grad(g, "loss", ["x"])) as exe:
        assert "rows in lanes" not in next(n for n in exe.report.notes if n.startswith("scan at"))

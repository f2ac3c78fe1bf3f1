"""Short loops in the bodies of others: steps of a solver, products over an axis; a kernel has them written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from paths import DOCS

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.passes.pipelines import NAMED

I, H, SUBSTEPS = 3, 5, 6
_RNG = np.random.default_rng(3)
WEIGHTS = {n: 0.4 * _RNG.standard_normal(s) for n, s in {"wi": (I, H), "wr": (H, H), "b": (H,), "a": (H,)}.items()}


def ltc(T: Any, B: Any, substeps: int = SUBSTEPS) -> li.Graph:
    """A liquid time constant cell: h <- (h + dt f a) / (1 + dt (1 + f)), f = sigmoid(x wi + h wr + b), six times."""
    x, h0 = li.input("x", (T, B, I), "f64"), li.input("h0", (B, H), "f64")
    w = {n: li.weight(n, a) for n, a in WEIGHTS.items()}
    dt = 1 / substeps

    def solve(h: Any, _: Any, seen: Any, w: Any) -> Any:
        f = li.logistic(seen + h @ w["wr"] + w["b"])
        return (h + dt * f * w["a"]) / (1 + dt * (1 + f)), None

    def cell(h: Any, row: Any, w: Any) -> Any:
        h, _ = li.scan(solve, h, None, (row @ w["wi"], w), length=substeps)
        return h, h

    h, ys = li.scan(cell, h0, x, (w,))
    return li.Graph("ltc", [x, h0], {"h": h, "ys": ys})


def numpy_ltc(x: Any, h0: Any, wi: Any, wr: Any, b: Any, a: Any) -> Any:
    h, ys = h0, []
    for row in x:
        for _ in range(SUBSTEPS):
            f = 1 / (1 + np.exp(-(row @ wi + h @ wr + b)))
            h = (h + f * a / SUBSTEPS) / (1 + (1 + f) / SUBSTEPS)
        ys.append(h)
    return np.stack(ys)


def loops(exe: li.Executable) -> list[str]:
    return [n for n in exe.report.notes if n.startswith("scan at")]


@pytest.mark.parametrize("kernels_asked", [True, False])
def test_a_solver_in_each_step(kernels_asked: bool, kernels: bool, seed: int) -> None:
    g, rng = ltc("T", "B"), np.random.default_rng(seed)
    with li.compile(g, options={"kernels": kernels_asked and kernels}) as exe:
        assert [": kernel, " in n for n in loops(exe)] == ([True] if kernels_asked and kernels else [])
        for T, B in ((4, 3), (1, 1), (7, 17)):
            arrays = {"x": rng.standard_normal((T, B, I)), "h0": rng.standard_normal((B, H))}
            want = numpy_ltc(**arrays, **WEIGHTS)
            for got in (exe(arrays), li.interpret(g, arrays)):
                np.testing.assert_allclose(got["ys"], want, rtol=1e-12, atol=1e-13)
                np.testing.assert_allclose(got["h"], want[-1], rtol=1e-12, atol=1e-13)


def test_the_pass_is_worth_its_place() -> None:
    counted = []
    for pipeline in (NAMED["default"].replace("unroll-loops,", ""), NAMED["default"]):
        report = prepare(ltc("T", "B"), resolve("cpu"), {"kernels": True, "pipeline": pipeline}).report
        counted.append(sum(": loop, " in n for n in report.notes))
    row = f"| `unroll-loops` | a solver in each step | loops without a kernel | {counted[0]} | {counted[1]} |"
    assert row in (DOCS / "passes.md").read_text()


@pytest.mark.parametrize("remat", [None, 2, (4, 2)])
def test_its_gradient(remat: Any, kernels: bool, seed: int) -> None:
    """By differences of the equations, for what comes in and every weight."""
    g, rng = ltc("T", "B"), np.random.default_rng(seed)
    loss = li.Graph("g", g.params, {"loss": li.sum(li.tanh(g.outputs[1]))})
    graph = li.grad(loss, "loss", ["x", "h0", *WEIGHTS], remat=remat)
    arrays = {"x": rng.standard_normal((5, 3, I)), "h0": rng.standard_normal((3, H))}
    values = {**arrays, **WEIGHTS}
    with li.compile(graph) as exe:
        if kernels and remat is None:
            assert all(": kernel, " in n for n in loops(exe))
        for got in (exe(arrays), li.interpret(graph, arrays)):
            for n, a in values.items():
                way = rng.standard_normal(a.shape)
                steps = [np.tanh(numpy_ltc(**{**values, n: a + e * way})).sum() for e in (1e-6, -1e-6)]
                slope = (steps[0] - steps[1]) / 2e-6
                assert np.sum(got[f"d_{n}"] * way) == pytest.approx(slope, rel=1e-6, abs=1e-8), n


def _scanned(h: Any, rows: Any, reverse: bool) -> Any:
    def step(h: Any, r: Any, number: Any) -> Any:
        return h * 0.5 + r * li.convert(number + 1, "f64"), h - r

    h, ys = li.scan(step, h, rows, reverse=reverse, with_step=True)
    return h, li.sum(ys * ys, 0)


BODIES: dict[str, Callable[[Any, Any], Any]] = {
    "product": lambda h, rows: (0.5 * li.tanh(h) + li.prod(li.tanh(rows), 0), li.prod(h, 1)),
    "running": lambda h, rows: (li.tanh(h + li.cumprod(rows, 0)[1]), h),
    "forward": lambda h, rows: _scanned(h, rows, reverse=False),
    "backward": lambda h, rows: _scanned(h, rows, reverse=True),
    "both": lambda h, rows: _scanned(_scanned(h, rows, reverse=True)[0], rows, reverse=False),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("body", BODIES)
def test_bodies(body: str, reverse: bool, kernels: bool, seed: int) -> None:
    """Beside the interpreter, which runs loops as they are written, and gradients beside its differences."""
    x, h0 = li.input("x", ("T", 3, "B", H), "f64"), li.input("h0", ("B", H), "f64")
    h, ys = li.scan(BODIES[body], h0, x, reverse=reverse)
    g = li.Graph("g", [x, h0], {"h": h, "ys": ys})
    loss = li.Graph("l", [x, h0], {"loss": li.sum(li.tanh(h)) + li.sum(li.tanh(ys))})
    back = li.grad(loss, "loss", ["x", "h0"])
    rng = np.random.default_rng(seed)
    with li.compile(g) as exe, li.compile(back) as slope:
        if kernels:
            assert all(": kernel, " in n for n in loops(exe))
        for T, B in ((4, 2), (1, 17)):
            arrays = {"x": rng.standard_normal((T, 3, B, H)), "h0": rng.standard_normal((B, H))}
            for n, a in li.interpret(g, arrays).items():
                np.testing.assert_allclose(exe(arrays)[n], a, rtol=1e-11, atol=1e-12, err_msg=n)
            got = slope(arrays)
            for n, a in arrays.items():
                way = rng.standard_normal(a.shape)
                steps = [float(li.interpret(loss, {**arrays, n: a + e * way})["loss"]) for e in (1e-6, -1e-6)]
                assert np.sum(got[f"d_{n}"] * way) == pytest.approx((steps[0] - steps[1]) / 2e-6, rel=1e-5, abs=1e-7), n


def test_long_loops_and_those_that_a_call_counts_stay(kernels: bool, seed: int) -> None:
    x, n = li.input("x", ("T", "B", H), "f64"), li.input("n", (), "i32")

    def cell(h: Any, row: Any, n: Any) -> Any:
        h, _ = li.scan(lambda h, _, r: (li.tanh(h + r), None), h, None, (row,), length=17)
        h, _ = li.scan(lambda h, _, r: (li.tanh(h - r), None), h, None, (row,), length=4, count=n)
        return h, h

    h, _ = li.scan(cell, li.zeros(("B", H), "f64"), x, (n,))
    g = li.Graph("g", [x, n], {"h": h})
    with li.compile(g) as exe:
        assert len(loops(exe)) == 3
        for count in (0, 3, 4):
            arrays = {"x": np.random.default_rng(seed).standard_normal((3, 2, H)), "n": np.int32(count)}
            np.testing.assert_allclose(exe(arrays)["h"], li.interpret(g, arrays)["h"], rtol=1e-12)


def test_a_loop_that_reads_another_one_does_not_run_it_again(rng: np.random.Generator) -> None:
    """Four in a row, each over what the one before gives, outside of a body and in one: each is there once."""
    x = li.input("x", (3, 5))

    def chain(v: li.Value) -> li.Value:
        for k in range(4):
            v = li.scan(lambda u, _, v=v, k=k: (0.5 * u + li.tanh(v) / (k + 1), None), v, length=20)[0]
        return v

    def loops(g: li.Graph) -> int:
        return sum(1 + loops(n.attrs["body"]) for n in g.nodes if n.op.name == "scan")

    inside, _ = li.scan(lambda h, row: (li.tanh(h + chain(row)), None), li.zeros((5,)), x)
    g = li.Graph("g", [x], {"out": chain(x), "in": inside})
    assert loops(g) == 9
    a = rng.normal(size=(3, 5)).astype("f4")

    def want(v: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        for k in range(4):
            u = v
            for _ in range(20):
                u = 0.5 * u + np.tanh(v) / (k + 1)
            v = u
        return v

    h = np.zeros(5)
    for row in a.astype("f8"):
        h = np.tanh(h + want(row))
    for got in (li.interpret(g, x=a), li.compile(g)(x=a)):
        np.testing.assert_allclose(got["out"], want(a.astype("f8")), rtol=1e-5)
        np.testing.assert_allclose(got["in"], h, rtol=1e-5)

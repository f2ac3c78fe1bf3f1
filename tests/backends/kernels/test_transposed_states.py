"""Matrices that a step transposes within their own row: covariances of a Kalman filter, a state kept symmetric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_ir as li

N, M = 4, 2  # numbers of a state, and of an observation
_RNG = np.random.default_rng(11)
F = np.eye(N) + 0.1 * _RNG.standard_normal((N, N))
LOOK = _RNG.standard_normal((M, N))
DRIFT, NOISE = 0.01 * np.eye(N), 0.1 * np.eye(M)


def kalman(T: Any, B: Any, dtype: str) -> li.Graph:
    """x = F x, P = F P F' + Q; S = L P L' + R, K = P L' S^-1; x += K (z - L x), P -= K L P."""
    kind = li.DType[dtype].numpy
    f, look = li.weight("f", F.astype(kind)), li.weight("look", LOOK.astype(kind))
    drift, noise = li.constant(DRIFT.astype(kind)), li.constant(NOISE.astype(kind))
    z, x0, p0 = (li.input(n, s, dtype) for n, s in (("z", (T, B, M)), ("x0", (B, N)), ("p0", (B, N, N))))

    def step(state: Any, z: Any, f: Any, look: Any) -> Any:
        x, p = state
        x, p = x @ li.swapaxes(f, 0, 1), f @ p @ li.swapaxes(f, 0, 1) + drift
        pl = p @ li.swapaxes(look, 0, 1)
        s = li.einsum("mi,bin->bmn", look, pl) + noise
        a, b, c, d = s[:, 0, 0], s[:, 0, 1], s[:, 1, 0], s[:, 1, 1]
        inverse = li.stack([li.stack([d, -b], 1), li.stack([-c, a], 1)], 1) / (a * d - b * c)[:, None, None]
        k = pl @ inverse
        x = x + li.einsum("bim,bm->bi", k, z - x @ li.swapaxes(look, 0, 1))
        p = p - k @ li.swapaxes(pl, 1, 2)
        return (x, 0.5 * (p + li.swapaxes(p, 1, 2))), (x, p[:, :, 0])

    (x, p), (xs, columns) = li.scan(step, (x0, p0), z, (f, look))
    return li.Graph("kalman", [z, x0, p0], {"x": x, "p": p, "xs": xs, "columns": columns})


def numpy_kalman(z: Any, x0: Any, p0: Any) -> dict[str, Any]:
    x, p, xs, columns = x0, p0, [], []
    for row in z:
        x, p = x @ F.T, F @ p @ F.T + DRIFT
        k = p @ LOOK.T @ np.linalg.inv(LOOK @ p @ LOOK.T + NOISE)
        x = x + np.einsum("bim,bm->bi", k, row - x @ LOOK.T)
        p = p - k @ (p @ LOOK.T).transpose(0, 2, 1)
        xs.append(x)
        columns.append(p[:, :, 0])
        p = 0.5 * (p + p.transpose(0, 2, 1))
    return {"x": x, "p": p, "xs": np.stack(xs), "columns": np.stack(columns)}


def given(rng: np.random.Generator, T: int, B: int, dtype: str) -> dict[str, Any]:
    root = rng.standard_normal((B, N, N))
    arrays = {"z": rng.standard_normal((T, B, M)), "x0": rng.standard_normal((B, N))}
    arrays["p0"] = 0.3 * root @ root.transpose(0, 2, 1) + np.eye(N)
    return {n: a.astype(li.DType[dtype].numpy) for n, a in arrays.items()}


def are_kernels(exe: li.Executable) -> bool:
    return all(": kernel, " in n for n in exe.report.notes if n.startswith("scan at"))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("sizes", [("T", "B"), (9, 3), ("T", 1)], ids=str)
def test_a_kalman_filter(sizes: tuple[Any, Any], dtype: str, kernels: bool, seed: int) -> None:
    rng, one = np.random.default_rng(seed), sizes[1] == 1
    with li.compile(kalman(*sizes, dtype)) as exe:
        assert are_kernels(exe) or not kernels
        for T, B in ((9, 1 if one else 3), *(() if sizes[0] == 9 else ((1, 1), (5, 1 if one else 33)))):
            arrays = given(rng, T, B, dtype)
            want = numpy_kalman(**{n: a.astype("f8") for n, a in arrays.items()})
            bound = 1e-4 if dtype == "f32" else 1e-11
            for n, a in exe(arrays).items():
                np.testing.assert_allclose(a, want[n], rtol=bound, atol=bound, err_msg=f"{n} {T} {B}")


def test_its_gradient(kernels: bool, seed: int) -> None:
    """By differences of the equations in f64."""
    g = kalman("T", "B", "f64")
    graph = li.grad(li.Graph("g", g.params, {"loss": li.sum(li.tanh(g.outputs[2]))}), "loss", ["z", "x0", "p0"])
    rng = np.random.default_rng(seed)
    arrays = given(rng, 6, 3, "f64")

    def loss(**a: Any) -> float:
        return float(np.tanh(numpy_kalman(**a)["xs"]).sum())

    with li.compile(graph) as exe:
        assert are_kernels(exe) or not kernels
        got = exe(arrays)
        for n, a in arrays.items():
            way = rng.standard_normal(a.shape)
            steps = [loss(**{**arrays, n: a + e * way}) for e in (1e-6, -1e-6)]
            assert np.sum(got[f"d_{n}"] * way) == pytest.approx((steps[0] - steps[1]) / 2e-6, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("dtype", ["f32", "i32", "f64"])
@pytest.mark.parametrize("n", [1, 3, 20])
def test_a_state_and_its_transpose(n: int, dtype: str, kernels: bool, seed: int) -> None:
    """All of the state of the step before is read before any of it is written."""
    first, x = li.input("first", ("B", n, n), dtype), li.input("x", ("T", "B", n), dtype)

    def step(p: Any, row: Any) -> Any:
        t = li.swapaxes(p, 1, 2)
        return t - row[:, :, None], (t[:, 0], p + t)

    last, (rows, both) = li.scan(step, first, x)
    g = li.Graph("g", [first, x], {"last": last, "rows": rows, "both": both})
    rng = np.random.default_rng(seed)
    with li.compile(g) as exe:
        assert are_kernels(exe) or not kernels
        for T, B in ((1, 1), (4, 3), (3, 17)):
            arrays = {"first": rng.integers(-9, 9, (B, n, n)), "x": rng.integers(-9, 9, (T, B, n))}
            arrays = {k: a.astype(li.DType[dtype].numpy) for k, a in arrays.items()}
            p, steps = arrays["first"], []
            for row in arrays["x"]:
                t = p.transpose(0, 2, 1)
                steps.append((t[:, 0], p + t))
                p = t - row[:, :, None]
            want = {"last": p, "rows": np.stack([a for a, _ in steps]), "both": np.stack([b for _, b in steps])}
            for k, a in exe(arrays).items():
                np.testing.assert_array_equal(a, want[k], err_msg=f"{k} {T} {B}")


def test_small_bodies_whose_rows_meet_in_any_way(kernels: bool, seed: int) -> None:
    """Sums over all pairs, a row that reads another one's carry, a matrix without rows: one row of one worker."""
    T, B, K = 5, 6, 7
    x, first, p0 = li.input("x", (T, B, K), "f64"), li.input("first", (B, K), "f64"), li.input("p0", (K, K), "f64")

    def step(state: Any, row: Any) -> Any:
        h, p = state
        met = li.sum(li.maximum(h[:, None], h[None]), 1)
        h = li.tanh(0.1 * met + row + li.concat([h[1:], h[:1]]))
        p = 0.1 * p @ li.swapaxes(p, 0, 1) + h[0, :, None] * h[-1]
        return (h, p), (h[2], p[:, 0], li.sum(p))

    (h, p), (rows, columns, sums) = li.scan(step, (first, p0), x)
    g = li.Graph("g", [x, first, p0], {"h": h, "p": p, "rows": rows, "columns": columns, "sums": sums})
    loss = li.Graph("l", g.params, {"loss": li.sum(h) + li.sum(p) + li.sum(rows) + li.sum(columns) + li.sum(sums)})
    back = li.grad(loss, "loss", ["x", "first", "p0"])
    rng = np.random.default_rng(seed)
    arrays = {n: rng.standard_normal(v.shape) for n, v in zip(g.input_names, g.params, strict=True)}
    for graph in (g, back):
        with li.compile(graph) as exe:
            if kernels:
                assert all(": kernel, " in n for n in exe.report.notes if n.startswith("scan at"))
            for n, a in li.interpret(graph, arrays).items():
                np.testing.assert_allclose(exe(arrays)[n], a, rtol=1e-10, atol=1e-11, err_msg=n)
    hs, ps = arrays["first"], arrays["p0"]
    for row in arrays["x"]:
        hs = np.tanh(0.1 * np.maximum(hs[:, None], hs[None]).sum(1) + row + np.roll(hs, -1, 0))
        ps = 0.1 * ps @ ps.T + hs[0, :, None] * hs[-1]
    np.testing.assert_allclose(li.interpret(g, arrays)["h"], hs, rtol=1e-12)
    np.testing.assert_allclose(li.interpret(g, arrays)["p"], ps, rtol=1e-11)

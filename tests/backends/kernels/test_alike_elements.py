"""Elementwise work that is alike for tensors of several shapes is one kernel, and so are sums of all their elements."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from kernel_checks import AVX2, BASELINE

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve

Array = np.ndarray[Any, Any]
SHAPES = ((3,), (1, 1), (17, 5), (64, 33), (2, 3, 701), (128, 129))
KERNELS = re.compile(r"stream\.executable private @(elements_\w+)")


def kernels(graph: li.Graph) -> int:
    """How many such kernels a module has."""
    return len(set(KERNELS.findall(prepare(graph, resolve("cpu")).text)))


def moved(p: Any, g: Any, m: Any, rate: Any, where: Any, sqrt: Any) -> tuple[Any, Any]:
    """As an optimizer: a mean, and what moves along it."""
    m = m * 0.9 + g * g * 0.1
    return where(m > 0.25, p - g / (sqrt(m) + 1e-3) * rate, p), m


def updates(shapes: tuple[tuple[int, ...], ...], dtype: str) -> li.Graph:
    rate, inputs, outputs = li.input("rate", (), dtype), list[li.Value](), dict[str, li.Value]()
    for k, shape in enumerate(shapes):
        p, g, m = (li.input(f"{n}{k}", shape, dtype) for n in "pgm")
        outputs[f"p{k}"], outputs[f"m{k}"] = moved(p, g, m, rate, li.where, li.sqrt)
        outputs[f"s{k}"] = li.sum(g * g)
        inputs += [p, g, m]
    return li.Graph("updates", [rate, *inputs], {f"new_{n}": v for n, v in outputs.items()})


def arrays(graph: li.Graph, rng: np.random.Generator) -> dict[str, Array]:
    out = {p.node.attrs["name"]: np.asarray(rng.standard_normal(p.shape), p.dtype.numpy) for p in graph.params}
    return {n: np.abs(a) if n[0] in "mr" else a for n, a in out.items()}


@pytest.mark.parametrize("target", ["cpu", AVX2, BASELINE])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_updates_and_sums(dtype: str, target: Any, rng: np.random.Generator) -> None:
    graph = updates(SHAPES, dtype)
    exe = li.compile(graph, target)
    given = arrays(graph, rng)
    got, limit = exe(given), 2e-6 if dtype == "f32" else 2e-14
    for k, shape in enumerate(SHAPES):
        p, g, m = (given[f"{n}{k}"].astype("f8") for n in "pgm")
        new, mean = moved(p, g, m, given["rate"].astype("f8"), np.where, np.sqrt)
        near = np.abs(mean - 0.25) < 1e-6  # either side of the comparison is right
        assert got[f"new_p{k}"].shape == shape
        np.testing.assert_allclose(np.where(near, 0, got[f"new_p{k}"]), np.where(near, 0, new), rtol=limit, atol=limit)
        np.testing.assert_allclose(got[f"new_m{k}"], mean, rtol=limit, atol=limit)
        np.testing.assert_allclose(got[f"new_s{k}"], (g * g).sum(), rtol=limit)


def test_nan_and_infinity_are_kept(rng: np.random.Generator) -> None:
    graph = updates(SHAPES, "f32")
    given = arrays(graph, rng)
    given["g3"][5, 7], given["g4"][1, 2, 700] = np.nan, np.inf
    got = li.compile(graph)(given)
    assert np.isnan(got["new_s3"])
    assert np.isinf(got["new_s4"])
    assert np.isnan(got["new_m3"]).sum() == 1
    assert np.isinf(got["new_m4"]).sum() == 1


def test_one_kernel_for_updates_and_one_for_sums() -> None:
    assert kernels(updates(SHAPES, "f32")) == 2
    assert kernels(updates(((64, 33), (64, 33)), "f32")) == 0  # IREE makes one of equal shapes
    whole = prepare(updates(SHAPES, "f32"), resolve("cpu"), {"kernels": False}).text
    assert not KERNELS.findall(whole)


def test_sums_do_not_lose_digits() -> None:
    """A million equal numbers: at most some 300 are added one after the other, each rounded by 6e-8 of the sum."""
    shapes = ((1_000_003,), (1009, 997))
    xs = [li.input(f"x{k}", s) for k, s in enumerate(shapes)]
    graph = li.Graph("sums", xs, {f"s{k}": li.sum(x) for k, x in enumerate(xs)})
    assert kernels(graph) == 1
    got = li.compile(graph)({f"x{k}": np.full(s, 0.1, "f4") for k, s in enumerate(shapes)})
    for k, s in enumerate(shapes):
        np.testing.assert_allclose(got[f"s{k}"], np.float64(np.float32(0.1)) * np.prod(s), rtol=300 * 6e-8)


def test_what_others_read_stays_outside(rng: np.random.Generator) -> None:
    """A value with another reader, a row that is repeated, an output that a sum reads."""
    inputs, outputs = list[li.Value](), dict[str, li.Value]()
    for k, (rows, columns) in enumerate(((5, 7), (9, 33), (20, 64))):
        a, b = li.input(f"a{k}", (rows, columns)), li.input(f"b{k}", (columns,))
        inputs += [a, b]
        twice = a * 2.0
        outputs |= {f"t{k}": li.tanh(twice) + 1.0, f"c{k}": li.cumsum(twice, 0), f"r{k}": li.tanh(a + b)}
        outputs |= {f"q{k}": (square := a * a), f"s{k}": li.sum(square)}
    graph = li.Graph("others", inputs, outputs)
    given = {p.node.attrs["name"]: rng.standard_normal(p.shape).astype("f4") for p in graph.params}
    got = li.compile(graph)(given)
    for k in range(3):
        x, y = given[f"a{k}"].astype("f8"), given[f"b{k}"].astype("f8")
        want = {"t": np.tanh(2 * x) + 1, "c": np.cumsum(2 * x, 0), "r": np.tanh(x + y), "q": x * x, "s": (x * x).sum()}
        for n, v in want.items():
            np.testing.assert_allclose(got[f"{n}{k}"], v, rtol=2e-5, atol=2e-5, err_msg=f"{n}{k}")

"""Sums of all rows by a kernel: sizes of panels and blocks, what is not finite, what is left to the compiler."""

from __future__ import annotations

import re

import numpy as np
import pytest
from kernel_checks import AVX2, BASELINE

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.kernels.cpu.machine import SUMMED_ROWS
from lstm_ir.backends.run.devices import resolve


def _kernels(graph: li.Graph, target: str = "cpu") -> int:
    return len(re.findall(r"flow.dispatch @row_sum_\w+::", prepare(graph, resolve(target)).text))


def _graph(shape: tuple[li.Dim, ...], axes: tuple[int, ...], dtype: str = "f32") -> li.Graph:
    x = li.input("x", shape, dtype)
    return li.Graph("sum", [x], {"y": li.sum(x, axes)})


@pytest.mark.parametrize("target", ["cpu", AVX2, BASELINE])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("columns", [16, 17, 96, 128, 129, 700])
def test_named_rows(columns: int, dtype: str, target: str, rng: np.random.Generator) -> None:
    """Integers in floats: sums in any order are the same."""
    graph = _graph(("T", "B", columns), (0, 1), dtype)
    assert _kernels(graph, target) == 1
    exe = li.compile(graph, target)
    for steps, rows in ((1, 1), (0, 3), (5, 1), (SUMMED_ROWS, 1), (SUMMED_ROWS + 1, 3), (7, 40)):
        x = rng.integers(-9, 10, (steps, rows, columns)).astype(li.DType(dtype).numpy)
        np.testing.assert_array_equal(exe(x=x)["y"], x.sum((0, 1)))


@pytest.mark.parametrize("device", ["local-task", "local-sync"])
def test_numbers_and_several_columns(device: str, rng: np.random.Generator) -> None:
    graph = _graph((1000, 3, 50, 2), (0, 1))
    assert _kernels(graph) == 1
    x = rng.integers(-9, 10, (1000, 3, 50, 2)).astype(np.float32)
    np.testing.assert_array_equal(li.compile(graph, device=device)(x=x)["y"], x.sum((0, 1)))


def test_what_is_not_finite_stays_in_its_column(rng: np.random.Generator) -> None:
    x = rng.standard_normal((300, 45)).astype(np.float32)
    x[7, 3], x[299, 44], x[0, 20] = np.inf, np.nan, -np.inf
    x[5, 20] = np.inf
    got = li.compile(_graph(("N", 45), (0,)))(x=x)["y"]
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(got, x.astype(np.float64).sum(0), rtol=1e-4, atol=1e-4)


def test_long_sums(rng: np.random.Generator) -> None:
    """The error is that of some hundreds of roundings, not of 200,000."""
    x = rng.random((200_000, 16)).astype(np.float32)
    got = li.compile(_graph(("N", 16), (0,)))(x=x)["y"]
    np.testing.assert_allclose(got, x.astype(np.float64).sum(0), rtol=5e-6)


def test_a_bias_gradient_is_one(rng: np.random.Generator) -> None:
    """What a loop stacked is added up where it lies."""
    x, w = li.input("x", ("T", "B", 24)), li.input("w", (64, 24))
    r, b = li.input("r", (64, 16)), li.input("b", (64,))
    y = li.lstm(x, w, r, b).y
    graph = li.grad(li.Graph("loss", [x, w, r, b], {"loss": li.sum(y * y)}), "loss", ["w", "r", "b"])
    assert _kernels(graph) == 1
    shapes = {"x": (9, 3, 24), "w": (64, 24), "r": (64, 16), "b": (64,)}
    a = {n: 0.3 * rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    got, wanted = li.compile(graph)(a), li.interpret(graph, a)
    for k, want in wanted.items():
        np.testing.assert_allclose(got[k], want, rtol=1e-4, atol=1e-4)


def test_what_is_left_to_the_compiler() -> None:
    """Other axes, few columns, few elements, halves, what is computed on the way, loops."""
    assert _kernels(_graph(("T", "B", 64), (0, 2))) == 0
    assert _kernels(_graph(("T", "B", 64), (2,))) == 0
    assert _kernels(_graph(("T", "B", 8), (0, 1))) == 0
    assert _kernels(_graph((3, 5, 64), (0, 1))) == 0
    assert _kernels(_graph(("T", "B", 64), (0, 1), "f16")) == 0
    x = li.input("x", ("T", "B", 64))
    assert _kernels(li.Graph("made", [x], {"y": li.sum(li.exp(x), (0, 1))})) == 0

"""Weights in int8 beside rows in 24 bits: as far from exact sums as stands in `passes/int8_products.py`.

Expected: sums of rounded weights in f64, or the NumPy meaning of the same loop over f32 rows. Each processor has a way
of its own to multiply bytes, and all are asked for the same.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_checks import AVX2, BASELINE, processor

import lstm_ir as li
from lstm_ir.api import Report, optimize, prepare
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.program import Program

Array = np.ndarray[Any, Any]
ROWS = "default,precision{{weights=int8,rows={}}},canonicalize,cse"
WORDS = ["cpu", AVX2, pytest.param(BASELINE, marks=pytest.mark.slow)]
SIX = 6 * 2.0**-24  # 1.51 of the row's rounding, and four roundings of f32: of a sum, and where sums meet their scales
I, H = 12, 23


def rounded(w: Array) -> Array:
    """What int8 by column keeps of a matrix [K, N], in f64."""
    scale = np.abs(w).max(0) / np.float32(127)
    scale[scale == 0] = 1
    kept: Array = np.clip(np.rint(w / scale), -127, 127).astype(np.float64) * scale
    return kept


def product(w: Array) -> li.Graph:
    x = li.input("x", ("B", len(w)))
    return li.Graph("g", [x], {"y": x @ li.weight("w", w)})


def uneven(rng: np.random.Generator, columns: int) -> Array:
    """Rows of one huge element, of zeros, of equal elements, of many sizes, tiny, near the largest, of one element."""
    x = rng.standard_normal((9, columns)).astype(np.float32)
    x[0, 3] = 1e6
    x[1], x[2] = 0, 1.0
    x[3] = np.ldexp(x[3], rng.integers(-30, 30, columns))
    x[4] *= np.float32(2.0**-100)
    x[5] = np.where(x[5] < 0, np.float32(-3e38), np.float32(3e38)) / (127 * columns)  # sums are of weights up to 127
    x[6] = np.float32(1) - np.ldexp(rng.integers(0, 9, columns), -24).astype(np.float32)
    x[7, 1:] = 0
    return x


@pytest.mark.parametrize("columns", [7, 64, 515])
@pytest.mark.parametrize("word", WORDS)
def test_no_sum_is_further_off_than_the_bound(word: str, columns: int, rng: np.random.Generator) -> None:
    w = rng.standard_normal((columns, 37)).astype(np.float32) / np.float32(np.sqrt(columns))
    w[:, 5] = 0
    exe = li.compile(product(w), processor(word), options={"pipeline": ROWS.format("int24")})
    x = uneven(rng, columns)
    got, kept = exe(x=x)["y"].astype(np.float64), rounded(w)
    bound = SIX * np.abs(x).max(1, keepdims=True).astype(np.float64) * np.abs(kept).sum(0) + 2.0**-126
    assert (np.abs(got - x.astype(np.float64) @ kept) <= bound).all()
    exact = x[[1, 7]].astype(np.float64) @ kept
    np.testing.assert_allclose(got[[1, 7]], exact, rtol=4 * 2.0**-23, atol=0)  # one element, or none: nothing is lost


@pytest.mark.parametrize("word", WORDS)
def test_subnormal_rows_count_as_zero(word: str) -> None:
    x = np.full((2, 9), 1e-41, np.float32)
    x[1] = -1e-45
    w = np.ones((9, 5), np.float32)
    for y in (
        li.compile(product(w), processor(word), options={"pipeline": ROWS.format("int24")})(x=x)["y"],
        li.interpret(made(product(w), "int24"), x=x)["y"],
    ):
        np.testing.assert_allclose(y, np.zeros((2, 5)), atol=2.0**-126)


@pytest.mark.parametrize("word", WORDS)
def test_infinite_elements_and_nan(word: str, rng: np.random.Generator) -> None:
    """One infinite element gives what f32 rows give: infinities with the signs of its weights, NaN where one is 0."""
    w = rng.uniform(0.5, 1, (11, 8)).astype(np.float32) * rng.choice([-1, 1], (11, 8)).astype(np.float32)
    w[4, 2] = 0
    x = rng.standard_normal((5, 11)).astype(np.float32)
    x[0, 4], x[1, 4], x[2, 7], x[3, 4], x[3, 5] = np.inf, -np.inf, np.nan, np.inf, np.nan
    with np.errstate(invalid="ignore"):
        want = x.astype(np.float64) @ rounded(w)
    got = li.compile(product(w), processor(word), options={"pipeline": ROWS.format("int24")})(x=x)["y"]
    assert np.isnan(want[0, 2])
    np.testing.assert_array_equal(got[:4], want[:4].astype(np.float32))
    assert np.isfinite(got[4]).all()


def made(graph: li.Graph, rows: str) -> li.Graph:
    """The graph that the passes make."""
    found = optimize(Program.of(graph), resolve("cpu"), Report("rows"), pipeline=ROWS.format(rows))
    return found.entries["main"]


def own(x: li.Value, w: li.Value, r: li.Value) -> li.Value:
    """A cell that multiplies a row and its state together, then what it computed from both in the same step."""

    def cell(h: li.Value, row: li.Value) -> tuple[li.Value, li.Value]:
        both = li.concat([row, h], 1) @ w
        new = li.tanh(both) * 0.5 + li.sigmoid(li.relu(both) @ r)
        return new, new

    y: li.Value = li.scan(cell, li.zeros((x.shape[1], H)), x)[1]
    return y


def layer(cell: str, T: li.Dim, B: li.Dim) -> li.Graph:
    rng, x = np.random.default_rng(7), li.input("x", (T, B, I))

    def weight(name: str, *shape: int) -> li.Value:
        return li.weight(name, (rng.uniform(-1, 1, shape) / 3).astype(np.float32))

    if cell == "own":
        y = own(x, weight("w", I + H, H), weight("r", H, H))
    else:
        gates, op = (4, li.lstm) if cell == "lstm" else (3, li.gru)
        y = op(x, weight("w", gates * H, I), weight("r", gates * H, H), weight("b", gates * H)).y
    return li.Graph(cell, [x], {"y": y})


def agrees(exe: Any, graph: li.Graph, steps: int, rows: int, rng: np.random.Generator) -> None:
    """With the loop over f32 rows, which differs by what a sum of f32 does, and with the meaning of 24 bits."""
    x = rng.standard_normal((steps, rows, I)).astype(np.float32)
    x[::3, ::2] *= 100  # gates that saturate
    got = exe(x=x)["y"]
    for way in ("f32", "int24"):
        np.testing.assert_allclose(got, li.interpret(made(graph, way), x=x)["y"], rtol=2e-5, atol=2e-5, err_msg=way)


@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("steps", [1, 20])
@pytest.mark.parametrize("cell", ["lstm", "gru", "own"])
def test_layers(cell: str, steps: int, rows: int, rng: np.random.Generator) -> None:
    graph = layer(cell, steps, rows)
    agrees(li.compile(graph, options={"pipeline": ROWS.format("int24")}), graph, steps, rows, rng)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("cell", ["lstm", "gru", "own"])
def test_layers_of_named_sizes(cell: str, word: str, rng: np.random.Generator) -> None:
    graph = layer(cell, "T", "B")
    exe = li.compile(graph, processor(word), options={"pipeline": ROWS.format("int24")})
    for steps, rows in ((1, 1), (20, 1), (20, 3), (20, 8), (2, 0), (0, 2), (1, 33)):
        agrees(exe, graph, steps, rows, rng)


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_weights_are_read_once_for_three_bytes(rows: int, kernels: bool) -> None:
    """In the loop over k three products follow a load: their rows are three, the packed weights one."""
    if not kernels:
        pytest.skip("kernels are off")
    text = prepare(layer("lstm", 20, rows), resolve("cpu:znver4"), {"precision": "int8"}).text
    loops = re.findall(r"scf\.for [^{]*iter_args[^{]*\{((?:(?!scf\.for)[^}])*vpdpbusd[^}]*)scf\.yield", text)
    assert loops
    for inside in loops:
        loads, products = inside.count("vector.load"), inside.count("vpdpbusd")
        assert products % (3 * loads) == 0


def test_a_state_of_zeros_is_not_multiplied(kernels: bool) -> None:
    """Nor is it where rows are int8: three bytes of a zero, or one, add nothing."""
    if not kernels:
        pytest.skip("kernels are off")
    for precision in ("int8", "int8-dynamic"):
        text = prepare(layer("lstm", "T", 3), resolve("cpu:znver4"), {"precision": precision}).text
        assert re.search(rf"arith.select %\w+, %c0, %c{-(-H // 4)} : index", text)


@pytest.mark.slow
def test_a_package_takes_the_module_that_multiplies_bytes(tmp_path: Path, rng: np.random.Generator) -> None:
    graph = layer("lstm", "T", "B")
    package = li.export(graph, tmp_path / "p.lirpkg", options={"precision": "int8"})
    exe = li.load(package)
    here = resolve("cpu").info
    if {"avx512vnni", "avx512bw"} <= set(here.features):
        assert str(exe.target) == "cpu:x86-64-v4-vnni"
    agrees(exe, graph, 5, 2, rng)

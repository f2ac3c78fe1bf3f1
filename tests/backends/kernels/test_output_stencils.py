"""Convolutions of many outputs as kernels whose vectors are outputs, forward and by both operands, against their
definition in float64: tiles of every width, blocks of part of a row and of whole rows, chunks of channels, two phases
side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from convolution_cases import Case, check, check_for

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.kernels.cpu.stencil_outputs import OutputTile
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.types import DType

CASES = {
    "stride": Case("conv", 2, 20, (51,), (5,), 33, (2,), ((2, 2),)),
    "named": Case("conv", "N", 33, ("L",), (3,), 100, padding=((1, 1),)),
    "uneven chunks": Case("conv", 1, 70, (57,), (4,), 80, (2,), ((5, 1),), (3,)),
    "groups": Case("conv", "N", 48, ("L",), (5,), 96, padding=((2, 2),), groups=2),
    "rows": Case("conv", "N", 24, (9, 11), (3, 3), 40, (2, 1), ((1, 1), (1, 1))),
    "part of a row": Case("conv", "N", 17, ("H", "W"), (3, 2), 48, (2, 2), ((1, 0), (0, 1))),
    "one tap": Case("conv", 3, 65, (45,), (1,), 112),
    "one tap, planes": Case("conv", "N", 20, ("H", "W"), (1, 1), 36, (2, 3)),
    "one tap, edges": Case("conv", "N", 20, ("L",), (1,), 24, (2,), ((1, 2),)),
    "one tap, places behind": Case("conv", "N", 20, ("H", "W"), (1, 1), 24, padding=((0, 1), (0, 2))),
    "transposed": Case("transposed", 2, 18, (31,), (5,), 36, (2,), more=(1,)),
    "transposed planes": Case("transposed", "N", 20, ("H", "W"), (3, 4), 24, (2, 2), ((1, 0), (0, 1))),
    "one axis spread": Case("transposed", "N", 20, ("H", 7), (3, 2), 24, (2, 1), ((1, 0), (0, 1))),
    "a phase without taps": Case("transposed", "N", 12, ("L",), (1,), 16, (2,)),
    "three phases": Case("transposed", "N", 16, ("L",), (4,), 24, (3,), ((1, 2),)),
    "many phases": Case("conv", 1, 1, (331,), (40,), 24, (16,), ((7, 3),)),
    "wide windows": Case("conv", "N", 2, ("L",), (3,), 20, dilations=(700,)),
    "f64": Case("conv", "N", 10, ("L",), (3,), 20, (2,), ((1, 1),), dtype="f64"),
    "f64 planes": Case("transposed", 2, 12, (5, 6), (2, 3), 20, (2, 2), dtype="f64"),
}
PARTS = 5  # modules that they are spread over
NOT_BY_TAPS = {"a phase without taps", "many phases", "wide windows"}


@pytest.mark.parametrize("device", ["local-sync", pytest.param("local-task", marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", range(PARTS))
def test_the_same_numbers(part: int, device: str, seed: int) -> None:
    check(list(CASES.values())[part::PARTS], seed, device=device)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4"])
def test_the_same_numbers_with_other_vectors(word: str, seed: int) -> None:
    check_for(word, list(CASES.values()), seed)


@pytest.mark.parametrize("name", [n for n in CASES if n not in NOT_BY_TAPS])
def test_all_ways_are_kernels(name: str) -> None:
    """Forward, and by both operands; nothing is multiplied by a copy of windows."""
    text = prepare(CASES[name].graph(), resolve("cpu:x86-64-v3")).text
    assert "@stencil_" in text
    assert "@stencil_taps_" in text
    assert "dot_general" not in text


@pytest.mark.parametrize("vectors", range(1, 23))
@pytest.mark.parametrize("word", ["cpu:x86-64-v3", "cpu:x86-64-v4"])
def test_tiles_have_room_and_waste_little(vectors: int, word: str) -> None:
    target = resolve(word).info
    lanes = target.vector_bits // 32
    tile = OutputTile.of(target, DType.f32, vectors * lanes)
    assert tile is not None
    registers = 32 if target.vector_bits == 512 else 16
    assert tile.places * tile.vectors + tile.vectors + 1 <= registers
    assert 0 <= tile.tiles * tile.vectors - vectors < tile.tiles


def test_few_outputs_in_vectors_of_many() -> None:
    """They are vectors of places."""
    target = resolve("cpu:x86-64-v4").info
    assert OutputTile.of(target, DType.f32, 9) is None
    assert OutputTile.of(target, DType.f32, 10) is not None


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("where", ["x", "w"])
def test_what_is_not_finite_stays_where_it_is_read(where: str, value: float) -> None:
    """Zeros around x times an infinite weight are NaN, as they are by the definition; nothing else meets it."""
    x, w = li.input("x", (2, 5, 40), "f32"), li.input("w", (20, 5, 3), "f32")
    graph = li.vjp(li.Graph("g", [x, w], {"y": li.conv1d(x, w, 2, 1)}), ["y"], ["x", "w"])
    r = np.random.default_rng(0)
    arrays = {n: r.standard_normal(p.shape, np.float32) for n, p in zip(graph.input_names, graph.params, strict=True)}
    arrays[where][1, 3, 2] = value
    got, want = li.compile(graph)(arrays), li.interpret(graph, arrays)
    assert not all(np.isfinite(right).all() for right in want.values())
    for name, right in want.items():
        np.testing.assert_allclose(got[name], right, rtol=2e-5, atol=2e-5, err_msg=name)


def test_one_weight_of_two_stencils_in_a_loop(seed: int) -> None:
    """Each is packed as its own call reads it."""
    r = np.random.default_rng(seed)
    w = li.weight("w", 0.1 * r.standard_normal((16, 16, 3, 3)), "f32")
    x, h = li.input("x", (4, 2, 16, 6, 6), "f32"), li.input("h", (2, 16, 6, 6), "f32")

    def cell(h: Any, row: Any) -> Any:
        down = li.conv2d(h, w, stride=2, padding=1)
        return li.tanh(li.conv_transpose2d(down, w, stride=2, padding=1, output_padding=1) + row), h

    h_n, y = li.scan(cell, h, x)
    graph = li.Graph("g", [x, h], {"h_n": h_n, "y": y})
    arrays = {"x": r.standard_normal(x.shape, np.float32), "h": r.standard_normal(h.shape, np.float32)}
    got, want = li.compile(graph)(arrays), li.interpret(graph, arrays)
    for name, right in want.items():
        np.testing.assert_allclose(got[name], right, rtol=2e-5, atol=2e-5, err_msg=f"seed {seed}: {name}")

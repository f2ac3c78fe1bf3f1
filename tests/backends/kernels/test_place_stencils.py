"""Convolutions of few outputs and channels as kernels whose vectors are places of a row, against their definition."""

from __future__ import annotations

import pytest
from convolution_cases import Case, check, check_for

from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve

CASES = {
    "by channel": Case("conv", "N", 6, ("L",), (31,), 6, padding=((15, 15),), groups=6),
    "by channel, numbers": Case("conv", 3, 5, (205,), (31,), 5, padding=((15, 15),), groups=5),
    "a long row": Case("conv", 1, 2, (611,), (3,), 3, padding=((0, 2),)),
    "dilation": Case("conv", "N", 3, ("L",), (4,), 9, padding=((9, 3),), dilations=(5,)),
    "wide planes": Case("conv", "N", 2, (5, 43), (3, 3), 4, (2, 1), ((1, 1), (1, 0))),
    "named planes": Case("conv", "N", 2, ("H", "W"), (2, 3), 3, padding=((1, 0), (1, 1))),
    "one tap": Case("conv", "N", 3, ("L",), (1,), 2),
    "one tap, places behind": Case("conv", "N", 3, ("L",), (1,), 2, padding=((0, 40),)),
    "one tap of a phase": Case("conv", "N", 3, ("L",), (3,), 2, (2,), ((1, 0),)),
    "transposed": Case("transposed", "N", 4, ("L",), (5,), 4, groups=4),
    "f64": Case("conv", "N", 3, ("L",), (3,), 2, padding=((1, 1),), dtype="f64"),
}
PARTS = 4  # modules that they are spread over


@pytest.mark.parametrize("device", ["local-sync", pytest.param("local-task", marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", range(PARTS))
def test_the_same_numbers(part: int, device: str, seed: int) -> None:
    check(list(CASES.values())[part::PARTS], seed, device=device)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4"])
def test_the_same_numbers_with_other_vectors(word: str, seed: int) -> None:
    check_for(word, list(CASES.values()), seed)


@pytest.mark.parametrize("name", [n for n in CASES if n != "one tap of a phase"])  # a stride is taken out first
def test_no_plane_is_padded_before(name: str) -> None:
    text = prepare(CASES[name].forward(), resolve("cpu:x86-64-v3")).text
    assert "@stencil_" in text
    assert "stablehlo.pad" not in text
    assert "tensor.insert_slice" not in text

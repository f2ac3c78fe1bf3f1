"""Every op that moves elements behind every other, in elements of every width."""

from __future__ import annotations

import pytest
from moves import DTYPES, MOVES, WIDTHS, every, sample
from sweep import held

import lstm_ir as li
from lstm_ir.ir.opdef import OPS, Trait


def test_every_op_that_moves_is_here() -> None:
    moving = {n for n, op in OPS.items() if Trait.data_movement in op.traits}
    assert {name.split()[0] for name in MOVES} == moving | {"pad", "gather", "scatter_add", "broadcast_in_dim"}


def test_every_dtype_is_here() -> None:
    assert {li.DType(d) for d in DTYPES} == set(li.DType)
    assert all(li.DType(d).bytes == int(w) for w, kinds in WIDTHS.items() if w != "bits" for d in kinds)


def test_some_pairs(seed: int) -> None:
    """Every fourth of the sample: others for other seeds."""
    held(sample(seed)[seed % 4 :: 4], seed)


@pytest.mark.slow
def test_the_sample(seed: int) -> None:
    held(sample(seed), seed)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", ["fixed", "open"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_pair(width: str, sizes: str, seed: int) -> None:
    held(every(width, sizes == "fixed"), seed)

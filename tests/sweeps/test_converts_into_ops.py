"""Every conversion before every op: what reads converted elements reads the right ones."""

from __future__ import annotations

import pytest
from conversions import DTYPES, PAIRS, every, one, sample
from sweep import held
from uses import taken, takes, uses

import lstm_ir as li
from lstm_ir.ir.opdef import OPS, Trait


def test_every_op_has_a_use() -> None:
    assert {use.op for use in uses()} == taken()


def test_every_use_takes_the_dtypes_that_its_op_takes() -> None:
    """Found by trying; beside it, what the type rule of an elementwise op says of each dtype."""
    for use in uses():
        taken_here = {b for b in DTYPES if one(DTYPES[b is DTYPES[0]], b, use, "fixed") is not None}
        op = OPS[use.op]
        if Trait.elementwise in op.traits and not op.attrs and use.op not in ("select", "clamp"):
            assert taken_here == {b for b in DTYPES if takes(use.op, b)}, use.name
        assert taken_here, use.name


def test_the_sample_has_every_pair_and_most_uses(seed: int) -> None:
    cases = sample(seed)
    assert len({c.name.rsplit(" > ", 1)[0] for c in cases}) == len(PAIRS)
    assert len({c.name.split(" > ")[2].rsplit(" (", 1)[0] for c in cases}) > 70


def test_some_conversions(seed: int) -> None:
    """Every eighth of the sample: other pairs for other seeds."""
    held(sample(seed)[seed % 8 :: 8], seed)


@pytest.mark.slow
def test_the_sample(seed: int) -> None:
    held(sample(seed), seed)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", ["fixed", "open"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_conversion(dtype: li.DType, sizes: str, seed: int) -> None:
    """One of three that the seed picks: all in three runs with seeds one after another."""
    cases = [c for c in every(dtype, sizes == "fixed") if not c.ops & {"scan", "lstm"}]
    held(cases[seed % 3 :: 3], seed)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", ["fixed", "open"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_conversion_into_loops(dtype: li.DType, sizes: str, seed: int) -> None:
    cases = [c for c in every(dtype, sizes == "fixed") if c.ops & {"scan", "lstm"}]
    held(cases[seed % 3 :: 3], seed)


@pytest.mark.long
@pytest.mark.parametrize("sizes", ["fixed", "open"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_whole_product(dtype: li.DType, sizes: str, seed: int) -> None:
    held(every(dtype, sizes == "fixed"), seed)

"""Every conversion before every op: what reads converted elements reads the right ones.

IREE fuses a convert into what reads it, and then has taken narrow elements for signed ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sweep import FORMS, OPEN, Case, Inputs, case, held
from uses import Use, taken, takes, uses

import lstm_ir as li
from lstm_ir.ir.opdef import OPS, Trait

DTYPES = tuple(li.DType)
PAIRS = [(a, b) for b in DTYPES for a in DTYPES if a is not b]


def one(a: li.DType, b: li.DType, use: Use, form: str) -> Case | None:
    """The use of a convert's result; None where the op does not take such elements."""
    i = Inputs(form)
    v = li.convert(use.value(i, a), b)
    try:
        y = use.build(i, v)
    except li.IRError:
        return None
    return case(f"{a} > {b} > {use} ({form})", i, y, tolerance=use.tolerance)


def every(b: li.DType, fixed: bool) -> list[Case]:
    """All dtypes as `b`, all uses; where sizes are open, the forms in turn."""
    return list(_every(b, fixed))


def _every(b: li.DType, fixed: bool) -> Iterator[Case]:
    turn = 0
    for a in DTYPES:
        for use in uses():
            if a is not b:
                c = one(a, b, use, "fixed" if fixed else OPEN[turn % len(OPEN)])
                if c is not None:
                    turn += 1
                    yield c


def sample(seed: int) -> list[Case]:
    """Each pair of dtypes once and each use about once, no loops; other partners for other seeds."""
    waiting = [use for use in uses() if use.op not in ("scan", "lstm")]
    waiting = waiting[seed % len(waiting) :] + waiting[: seed % len(waiting)]
    found: list[Case] = []
    for k, (a, b) in enumerate(PAIRS):
        for use in waiting:
            c = one(a, b, use, tuple(FORMS)[(seed + k) % len(FORMS)])
            if c is not None:
                waiting.remove(use)
                waiting.append(use)  # those that were not tried yet come first
                found.append(c)
                break
    return found


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

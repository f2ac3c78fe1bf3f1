"""Every conversion before every op: what reads converted elements reads the right ones.

IREE fuses a convert into what reads it, and then has taken narrow elements for signed ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sweep import FORMS, OPEN, Case, Inputs, case, held
from uses import Use, taken, uses

import lstm_ir as li

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
    """Each pair of dtypes once and each use once, with other partners for other seeds."""
    found: list[Case] = []
    waiting = list(uses())
    for k, (a, b) in enumerate(PAIRS[seed % 90 :] + PAIRS[: seed % 90]):
        form = tuple(FORMS)[(seed + k) % len(FORMS)]
        c = next(c for use in waiting if (c := one(a, b, use, form)) is not None)
        found.append(c)
    return found


def test_every_op_has_a_use() -> None:
    assert {use.op for use in uses()} == taken()

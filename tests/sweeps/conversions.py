"""Conversions before ops that read what was converted.

IREE fuses a convert into what reads it, and then has taken narrow elements for signed ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from sweep import FORMS, OPEN, Case, Inputs, case
from uses import Use, uses

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

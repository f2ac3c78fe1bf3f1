"""Whether rows of a call keep to themselves, tried before clients rely on it.

A compiled program does not say whether a row of its outputs reads other rows of its inputs (a softmax over the
batch, say), or steps behind a row's length. So drawn inputs are called as one batch and as single requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lstm_ir.ir.errors import CallError, LstmIrError, ValueRangeError
from lstm_ir.serving.rows import Prepared, Rows
from lstm_ir.verification.bounds import checked
from lstm_ir.verification.draw import REACH, TRIES, draw_arrays, draw_sizes

Array = np.ndarray[Any, Any]
Call = Callable[[Mapping[str, Array]], Mapping[str, Array]]
_DRAWS = 3  # a graph whose rows mix differs in each; one whose rows do not may, by a tie of two numbers
_BOUND = {2: 0.05, 4: 1e-3, 8: 1e-6}  # by bytes of a float: of the largest number; a mixed row is off by about that
_STEPS = (5, 9, 17, 33, 65)  # of the longest request, in turn: some graphs take no few steps
_SEED = 20261


def confirm_rows(rows: Rows, call: Call) -> None:
    """CallError where the rows of a call mix; padding is given up, or refused, where it changes results."""
    _same(rows, call, pad=False)
    if rows.pads:
        _same(rows, call, pad=True)


def _same(rows: Rows, call: Call, *, pad: bool) -> None:
    rng = np.random.default_rng(_SEED)
    worst = ""
    for _ in range(_DRAWS):
        requests = _drawn(rows, call, rng, pad)
        together = rows.split(call(rows.merge(requests)), requests)
        worst = ""
        for request, found in zip(requests, together, strict=True):
            alone = _alone(rows, call, request)
            worst = worst or _difference(found, alone)
        if not worst:
            return
    name = rows.entry.name
    if pad:
        raise CallError(
            f"{name}: {worst} of a row changes with the steps behind its length, so time cannot be padded; "
            "pad=False lets requests of equal steps go together"
        )
    raise CallError(f"{name}: {worst} of a row changes with other rows of its call, so requests cannot share one")


def _alone(rows: Rows, call: Call, request: Prepared) -> Mapping[str, Array]:
    try:
        return call(rows.merge([request]))
    except ValueRangeError as e:
        raise CallError(
            f"{rows.entry.name}: what a call takes depends on other rows of it, so requests cannot share one: {e}"
        ) from e


def _drawn(rows: Rows, call: Call, rng: np.random.Generator, pad: bool) -> list[Prepared]:
    """Requests of one call: three of one row, or two of different lengths."""
    last: LstmIrError | None = None
    for reach in REACH:
        for number in range(TRIES):
            given: dict[str, Sequence[int]] = {rows.batch: (3,)}
            if pad:
                given[rows.time] = _STEPS
            try:
                sizes = draw_sizes(rows.entry, given, rng, number, reach)
                arrays = draw_arrays(rows.entry, sizes, {}, checked(rows.entry), rng)
                found = _cut(rows, arrays, sizes[rows.time] if pad else None)
                call(rows.merge(found))
            except (CallError, ValueRangeError) as e:
                last = e
            else:
                return found
    why = "" if last is None else f": {last}"
    raise CallError(f"{rows.entry.name}: no inputs were found to try whether rows mix (check=False trusts it){why}")


def _cut(rows: Rows, arrays: Mapping[str, Array], longest: int | None) -> list[Prepared]:
    found = []
    for row in range(3):
        steps = None if longest is None else longest - row
        own = {}
        for p, axes in zip(rows.entry.inputs, rows.inputs, strict=True):
            a = arrays[p.name]
            if axes.batch is not None:
                a = a.take([row], axes.batch)
            if steps is not None and axes.time is not None:
                a = a.take(np.arange(steps), axes.time)
            if steps is not None and p.name == rows.lengths:
                a = np.minimum(a, steps).astype(a.dtype)
            own[p.name] = a
        found.append(rows.prepare(own))
    return found


def _difference(batched: Mapping[str, Array], alone: Mapping[str, Array]) -> str:
    for name, a in batched.items():
        b = alone[name]
        if a.dtype.kind in "biu":
            same = np.array_equal(a, b)
        else:
            wide, other = a.astype(np.float64), b.astype(np.float64)
            largest = np.max(np.abs(other), initial=0.0, where=np.isfinite(other))
            same = np.allclose(wide, other, rtol=0, atol=_BOUND[a.itemsize] * max(largest, 1e-30), equal_nan=True)
        if not same:
            return f"output {name}"
    return ""

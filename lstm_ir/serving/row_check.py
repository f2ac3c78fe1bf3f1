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
# Steps of the longest request: the first that the graph takes, which may be no few and no many. What an op does may
# hang on time modulo its stride (padding="same"): behind an even and an odd number, and from each of eight lengths in
# a row, every remainder of every modulus up to 8 meets every other in which such an op tells them apart.
_STEPS = ((16, 32, 64, 8, 4), (17, 33, 65, 9, 5))
_PADDED = 8  # rows without, with one, two, ... steps behind them, which have all their own steps
_SHORT = 3  # more such rows, whose lengths are drawn
_SEED = 20261


def confirm_rows(rows: Rows, call: Call) -> None:
    """CallError where the rows of a call mix; padding is given up, or refused, where it changes results."""
    _same(rows, call, None)
    if rows.pads:
        for longest in _STEPS:
            _same(rows, call, longest)


def _same(rows: Rows, call: Call, longest: Sequence[int] | None) -> None:
    rng = np.random.default_rng(_SEED)
    worst = ""
    for _ in range(_DRAWS):
        requests = _drawn(rows, call, rng, longest)
        together = rows.split(call(rows.merge(requests)), requests)
        worst = ""
        for request, found in zip(requests, together, strict=True):
            alone = _alone(rows, call, request)
            worst = worst or _difference(found, alone)
        if not worst:
            return
    name = rows.entry.name
    if longest is not None:
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


def _drawn(rows: Rows, call: Call, rng: np.random.Generator, longest: Sequence[int] | None) -> list[Prepared]:
    """Requests of one row for one call: three of equal steps, or some that are padded to one of `longest`."""
    last: LstmIrError | None = None
    for reach in REACH:
        for number in range(TRIES):
            given: dict[str, Sequence[int]] = {rows.batch: (3,)}
            if longest is not None:
                given = {rows.batch: (_PADDED + _SHORT,), rows.time: longest}
            try:
                sizes = draw_sizes(rows.entry, given, rng, number, reach)
                arrays = draw_arrays(rows.entry, sizes, {}, checked(rows.entry), rng)
                found = _cut(rows, arrays) if longest is None else _shorter(rows, arrays, sizes[rows.time])
                call(rows.merge(found))
            except (CallError, ValueRangeError) as e:
                last = e
            else:
                return found
    why = "" if last is None else f": {last}"
    raise CallError(f"{rows.entry.name}: no inputs were found to try whether rows mix (check=False trusts it){why}")


def _cut(rows: Rows, arrays: Mapping[str, Array]) -> list[Prepared]:
    return [rows.prepare(_row(rows, arrays, row)) for row in range(3)]


def _shorter(rows: Rows, arrays: Mapping[str, Array], longest: int) -> list[Prepared]:
    found = []
    for row in range(_PADDED + _SHORT):
        steps = longest - row % _PADDED
        if steps < 1:
            continue
        own = _row(rows, arrays, row)
        for p, axes in zip(rows.entry.inputs, rows.inputs, strict=True):
            a = own[p.name]
            if axes.time is not None:
                a = a.take(np.arange(steps), axes.time)
            if p.name == rows.lengths:
                a = np.full_like(a, steps) if row < _PADDED else np.minimum(a, steps).astype(a.dtype)
            own[p.name] = a
        found.append(rows.prepare(own))
    return found


def _row(rows: Rows, arrays: Mapping[str, Array], row: int) -> dict[str, Array]:
    found = {}
    for p, axes in zip(rows.entry.inputs, rows.inputs, strict=True):
        a = arrays[p.name]
        found[p.name] = a if axes.batch is None else a.take([row], axes.batch)
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

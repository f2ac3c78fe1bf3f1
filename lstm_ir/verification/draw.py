"""Inputs of a call: sizes for all names, and arrays of them, from one generator of random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.errors import CallError
from lstm_ir.ir.signature import Entry, Port, by_name, check_call
from lstm_ir.ir.types import DType
from lstm_ir.verification.bounds import Bound, Bounds

Array = np.ndarray[Any, Any]
Range = tuple[float, float]
REACH = (32, 512, 8192)  # the largest size that is drawn, and later ones where no smaller size is taken
TRIES = 24  # draws for each of them
MAX_ELEMENTS = 2**26  # of one input
PLAIN = (0, 9)  # integers of which nothing is known; 8-bit ones have all their values


def draw_sizes(
    entry: Entry, choices: Mapping[str, Sequence[int]], rng: np.random.Generator, number: int, reach: int
) -> dict[str, int]:
    """A size for each name: the given ones in turn, else one of 1 to `reach`, small ones as often as large ones."""
    sizes: dict[str, int] = {}
    for name in entry.dims:
        values = choices.get(name)
        if values:
            sizes[name] = int(values[number % len(values)])
        else:
            every = np.unique(np.geomspace(1, reach, 24).astype(int))
            others = [n for n in every if n not in sizes.values()]  # other sizes than the other names have
            sizes[name] = int(rng.choice(others if others else every))
    return sizes


def shapes(entry: Entry, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
    """The inputs' shapes; CallError where the program does not take these sizes."""
    found = []
    for p in entry.inputs:
        shape = tuple(dims.evaluate(d, sizes) for d in p.type.shape)
        if min(shape, default=0) < 0 or np.prod(shape, dtype=object) > MAX_ELEMENTS:
            raise CallError(f"{p.name}: {p.type} is {list(shape)}")
        found.append(shape)
    entry.bound(tuple(found))
    return tuple(found)


def draw_arrays(
    entry: Entry, sizes: Mapping[str, int], ranges: Mapping[str, Range], bounds: Bounds, rng: np.random.Generator
) -> dict[str, Array]:
    """An array for each input.

    Floats are of the normal distribution, or uniform in a range. Integers lie in the range or within what is known
    of them; lengths fall from row to row, and the first row has all steps. Booleans are any.
    """
    out = {}
    for p, shape in zip(entry.inputs, shapes(entry, sizes), strict=True):
        out[p.name] = _array(p, shape, sizes, ranges.get(p.name), bounds.get(p.name, ()), rng)
    return out


def given_arrays(entry: Entry, inputs: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, Array]]:
    """The arrays of a call, and the sizes that they have. CallError where one is missing or does not fit."""
    arrays = check_call(entry, by_name(entry, (inputs,), {}))
    return dict(entry.bound(tuple(a.shape for a in arrays.values())).env), arrays


def _array(
    p: Port, shape: tuple[int, ...], sizes: Mapping[str, int], value_range: Range | None, known: Sequence[Bound],
    rng: np.random.Generator,
) -> Array:  # fmt: skip
    dtype = p.type.dtype
    if dtype is DType.i1:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_float:
        reals = rng.standard_normal(shape) if value_range is None else rng.uniform(*value_range, shape)
        return np.asarray(reals).astype(dtype.numpy)
    low, high = _limits(p, sizes, value_range, known)
    values = rng.integers(low, high, shape, endpoint=True)
    if value_range is None and any(b.lengths for b in known) and values.size:
        values = np.sort(values.reshape(-1))[::-1].reshape(shape)
        values.reshape(-1)[0] = high
    return values.astype(dtype.numpy)


def _limits(p: Port, sizes: Mapping[str, int], value_range: Range | None, known: Sequence[Bound]) -> tuple[int, int]:
    info = np.iinfo(p.type.dtype.numpy)
    if value_range is not None:
        low, high = (int(v) for v in value_range)
        if not info.min <= low <= high <= info.max:
            raise CallError(f"{p.name}: the range {low}..{high} is empty, or not of {p.type.dtype}")
        return low, high
    low, high = (int(info.min), int(info.max)) if p.type.dtype.bits == 8 else PLAIN
    if known:
        lowest = [dims.evaluate(b.low, sizes) for b in known if b.low is not None]
        highest = [dims.evaluate(b.high, sizes) for b in known if b.high is not None]
        low = max(lowest, default=min(low, *highest) if highest else low)
        high = min(highest, default=max(high, low))
        if any(b.lengths for b in known):
            low = min(max(low, 1), high)  # a row without steps is another model's meaning
    if low > high:
        raise CallError(f"{p.name}: no value is in all ranges that the graph states")
    return low, high

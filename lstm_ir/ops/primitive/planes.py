"""What `stencil` and `stencil_grad` are, by other primitives.

A stride is taken out first: of stride 2, even and odd places become a plane each, and in every plane neighbours of a
result are neighbours in memory. A spacing is taken out first too: results that are so many places apart see the same
taps, and are a stencil of their own. What is left is one product of what all taps see with a matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate, pairwise, product

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.types import DType, Shape
from lstm_ir.ops.primitive.elementwise import add
from lstm_ir.ops.primitive.fill import zeros
from lstm_ir.ops.primitive.gather import take
from lstm_ir.ops.primitive.linear import dot_general
from lstm_ir.ops.primitive.reduce import sum
from lstm_ir.ops.primitive.shape import concat, reshape, stack, transpose
from lstm_ir.ops.primitive.stencil import Both, Ints, Taps, stencil, stencil_grad
from lstm_ir.ops.primitive.window import pad, pad_axis, slice, slice_axis

PHASES_APART = 4  # phases that are a stencil each, at most; more are outputs of one; figure not kept
GROUPS_APART = 16  # groups whose sums of outer products are products of their own, at most; figure not kept
JOINED = 16  # parts of a concatenation; IREE compiles ones of many more slowly, figure not kept


# -- a spacing


def apart(lhs: Value, rhs: Value, taps: Taps, height: Dim, width: Dim) -> Value:
    """A stencil with a spacing by some without: one for all results that lie a spacing apart, then side by side."""
    spread = Phases.of(taps)
    counts = spread.counts(height, width)
    if len(spread.which) > PHASES_APART:
        every = _of_every_phase(rhs, spread)
        groups, outputs = rhs.shape[:2]
        y = stencil(lhs, every, spread.places, *counts)
        y = reshape(y, (lhs.shape[0], groups, outputs, len(spread.which), *counts))
    else:
        parts = []
        for which, seen in zip(spread.which, spread.seen, strict=True):
            if which:
                parts.append(stencil(lhs, of_taps(rhs, which, 3), spread.taps.picked(seen), *counts))
            else:
                parts.append(zeros((*lhs.shape[:2], rhs.shape[1], *counts), lhs.dtype))
        y = stack(parts, 3)
    return _side_by_side(y, taps.spacing, height, width)


def _side_by_side(y: Value, spacing: Both, height: Dim, width: Dim) -> Value:
    """[N,G,M,phases,..] as [N,G,M,height,width]."""
    (down, right), counts = spacing, y.shape[4:]
    y = transpose(reshape(y, (*y.shape[:3], down, right, *counts)), (0, 1, 2, 5, 3, 6, 4))
    y = reshape(y, (*y.shape[:3], dims.mul(counts[0], down), dims.mul(counts[1], right)))
    return slice(y, (0,) * 5, (*y.shape[:3], height, width))


@dataclass(frozen=True)
class Phases:
    """Results p of one p % spacing see the same taps, at p // spacing.

    taps: without a spacing, phase by phase. which: for each phase, its taps by their numbers in those that have the
    spacing; seen: by their numbers in `taps`.
    """

    taps: Taps
    spacing: Both
    which: tuple[Ints, ...]

    @classmethod
    def of(cls, taps: Taps) -> Phases:
        """Of taps with a spacing, or without: then there is one phase."""
        which: list[Ints] = []
        seen: list[list[int]] = []
        for phase in product(*map(range, taps.spacing)):
            mine = []
            for k, tap in enumerate(zip(taps.rows, taps.columns, strict=True)):
                at = [p + i - low for p, i, low in zip(phase, tap, taps.low, strict=True)]
                if all(n % by == 0 for n, by in zip(at, taps.spacing, strict=True)):
                    mine.append(k)
                    seen.append([n // by for n, by in zip(at, taps.spacing, strict=True)])
            which.append(tuple(mine))
        first = [min(at) for at in zip(*seen, strict=True)]
        high = [(h + 2 * (by - 1)) // by for h, by in zip(taps.high, taps.spacing, strict=True)]
        rows, columns = (tuple(n - at for n in axis) for axis, at in zip(zip(*seen, strict=True), first, strict=True))
        found = Taps(rows, columns, taps.strides, low=(-first[0], -first[1]), high=(high[0], high[1]))
        return cls(found, taps.spacing, tuple(which))

    @property
    def seen(self) -> list[range]:
        """Where each phase's taps stand in `taps`."""
        ends = [0, *accumulate(map(len, self.which))]
        return [range(a, b) for a, b in pairwise(ends)]

    def counts(self, height: Dim, width: Dim) -> tuple[Dim, Dim]:
        """Results of a phase along each axis; the last may not exist."""
        high, wide = (
            dims.floordiv(dims.add(d, by - 1), by) for d, by in zip((height, width), self.spacing, strict=True)
        )
        return high, wide

    @property
    def places(self) -> Taps:
        """All places that a phase's taps see, each once."""
        pairs = sorted(set(zip(self.taps.rows, self.taps.columns, strict=True)))
        rows, columns = zip(*pairs, strict=True)
        return replace(self.taps, rows=rows, columns=columns)


def _of_every_phase(rhs: Value, phases: Phases) -> Value:
    """[G,M phases,E,places]: of each phase what its taps are multiplied by at each place, zero where it has none."""
    groups, outputs, each, count = rhs.shape
    places = list(zip(phases.places.rows, phases.places.columns, strict=True))
    table = np.full((len(phases.which), len(places)), count, np.int32)  # a tap of zeros, behind all others
    for a, (which, seen) in enumerate(zip(phases.which, phases.seen, strict=True)):
        for k, at in zip(which, seen, strict=True):
            table[a, places.index((phases.taps.rows[at], phases.taps.columns[at]))] = k
    picked = take(pad(rhs, (0, 0, 0, 0), (0, 0, 0, 1)), constant(table, DType.i32), 3)
    picked = transpose(picked, (0, 1, 3, 2, 4))
    return reshape(picked, (groups, dims.mul(outputs, len(phases.which)), each, len(places)))


def of_taps(rhs: Value, which: Sequence[int], axis: int) -> Value:
    """These taps alone, which are an axis of rhs."""
    if list(which) == list(range(rhs.shape[axis])):
        return rhs
    steps = {b - a for a, b in pairwise(which)} or {1}
    if len(steps) == 1 and min(steps) > 0:
        return slice_axis(rhs, axis, which[0], which[-1] + 1, min(steps))
    return concat([slice_axis(rhs, axis, k, k + 1) for k in which], axis)


# -- a stride


@dataclass(frozen=True)
class Planes:
    """What all taps see of lhs: [N,G,E,S,H,W], and in which plane each tap reads, from which row and column on."""

    value: Value
    planes: Ints
    rows: Ints
    columns: Ints
    height: Dim
    width: Dim

    @classmethod
    def of(cls, lhs: Value, taps: Taps, height: Dim, width: Dim) -> Planes:
        """The planes that a stride leaves, with the zeros that taps see. Without a spacing."""
        x, sizes = lhs, (height, width)
        for k, (by, reach, count) in enumerate(zip(taps.strides, taps.reach, sizes, strict=True)):
            whole = dims.mul(dims.add(count, reach // by), by)
            more = dims.add(whole, dims.mul(dims.add(x.shape[3 + k], taps.low[k]), -1))
            if not isinstance(more, int) and dims.at_least(more, 0) is not True:
                more = max(0, taps.high[k] + by - 1)  # as many as there may be; a call cuts some off
            x = pad_axis(x, 3 + k, taps.low[k], more)
            x = slice_axis(x, 3 + k, 0, whole)
        (down, right), lead = taps.strides, x.shape[:3]
        high, across = (dims.add(d, reach // by) for d, reach, by in zip(sizes, taps.reach, taps.strides, strict=True))
        x = transpose(reshape(x, (*lead, high, down, across, right)), (0, 1, 2, 4, 6, 3, 5))
        where = [(divmod(i, down), divmod(j, right)) for i, j in zip(taps.rows, taps.columns, strict=True)]
        planes = tuple(p * right + q for (_, p), (_, q) in where)
        rows, columns = tuple(i for (i, _), _ in where), tuple(j for _, (j, _) in where)
        return cls(reshape(x, (*lead, down * right, high, across)), planes, rows, columns, height, width)

    @property
    def taps(self) -> list[tuple[int, int, int]]:
        """Plane, row, column of each."""
        return list(zip(self.planes, self.rows, self.columns, strict=True))

    def seen_by(self, tap: tuple[int, int, int]) -> Value:
        """[N,G,E,height,width] that one tap sees."""
        s, i, j = tap
        lead = self.value.shape[:3]
        low, high = (0, 0, 0, s, i, j), (*lead, s + 1, dims.add(self.height, i), dims.add(self.width, j))
        return reshape(slice(self.value, low, high), (*lead, self.height, self.width))

    def windows(self) -> Value:
        """[G,N,height,width,K E]: what all taps see, side by side."""
        last = transpose(self.value, (1, 0, 4, 5, 3, 2))
        groups, batch, _, _, _, each = last.shape
        parts: list[Value] = []
        for (s, i, j), run in self._runs():
            low = (0, 0, i, j, s, 0)
            high = (groups, batch, dims.add(self.height, i), dims.add(self.width, j), s + run, each)
            sizes: Shape = (groups, batch, self.height, self.width, dims.mul(each, run))
            parts.append(reshape(slice(last, low, high), sizes))
        while len(parts) > JOINED:
            parts = [concat(parts[at : at + JOINED], 4) for at in range(0, len(parts), JOINED)]
        return concat(parts, 4)

    def _runs(self) -> list[tuple[tuple[int, int, int], int]]:
        """Taps that read neighbouring planes at one place are one slice: the first, and how many."""
        out: list[tuple[tuple[int, int, int], int]] = []
        for s, i, j in self.taps:
            if out:
                (first, row, column), run = out[-1]
                if (first + run, row, column) == (s, i, j):
                    out[-1] = (first, row, column), run + 1
                    continue
            out.append(((s, i, j), 1))
        return out


# -- products


def products(lhs: Value, rhs: Value, taps: Taps, height: Dim, width: Dim) -> Value:
    """`stencil` by products.

    Channels lie last: what a tap sees is runs of memory, and the product one of many rows with a
    matrix. Groups are a batch axis. Where a group has one channel, it is a sum over taps.
    """
    if taps.spacing != (1, 1):
        return apart(lhs, rhs, taps, height, width)
    planes = Planes.of(lhs, taps, height, width)
    (groups, more, each, count), batch = rhs.shape, lhs.shape[0]
    if groups != 1 and each == 1:
        parts = [
            planes.seen_by(tap) * reshape(slice_axis(rhs, 3, k, k + 1), (groups, more, 1, 1))
            for k, tap in enumerate(planes.taps)
        ]
        return reduce(add, parts)
    depth = dims.mul(each, count)
    seen = planes.windows()
    places = dims.product((batch, height, width))
    if groups == 1:
        by_row = count == 1  # then the matrix is read as it lies, [M, E]
        matrix = reshape(rhs if by_row else transpose(rhs, (0, 3, 2, 1)), (more, depth) if by_row else (depth, more))
        rows = dot_general(reshape(seen, (places, depth)), matrix, ((1,), (1 if by_row else 0,)))
        return transpose(reshape(rows, (batch, 1, height, width, more)), (0, 1, 4, 2, 3))
    matrix = reshape(transpose(rhs, (0, 3, 2, 1)), (groups, depth, more))
    rows = dot_general(reshape(seen, (groups, places, depth)), matrix, ((2,), (1,)), ((0,), (0,)))
    return transpose(reshape(rows, (groups, batch, height, width, more)), (1, 0, 4, 2, 3))


def tap_products(lhs: Value, ct: Value, taps: Taps) -> Value:
    """`stencil_grad` by products."""
    if taps.spacing != (1, 1):  # what is read and what reads change places
        return transpose(stencil_grad(ct, lhs, taps.turned(lhs.shape[3:], ct.shape[3:])), (0, 2, 1, 3))
    (batch, groups, more, height, width), each, count = ct.shape, lhs.shape[2], len(taps)
    planes = Planes.of(lhs, taps, height, width)
    if groups != 1 and each == 1:
        parts = [planes.seen_by(tap) for tap in planes.taps]
        sums = [reshape(sum(part * ct, (0, 3, 4)), (groups, more, 1, 1)) for part in parts]
        return concat(sums, 3)
    depth, places = dims.mul(each, count), dims.product((batch, height, width))
    seen, rows = planes.windows(), transpose(ct, (1, 0, 3, 4, 2))
    if groups == 1:
        met = dot_general(reshape(seen, (places, depth)), reshape(rows, (places, more)), ((0,), (0,)))
    else:
        seen, rows = reshape(seen, (groups, places, depth)), reshape(rows, (groups, places, more))
        if isinstance(groups, int) and groups <= GROUPS_APART:
            met = concat([dot_general(_group(seen, g), _group(rows, g), ((0,), (0,))) for g in range(groups)], 0)
        else:
            met = dot_general(seen, rows, ((1,), (1,)), ((0,), (0,)))
    return transpose(reshape(met, (groups, count, each, more)), (0, 3, 2, 1))


def _group(v: Value, g: int) -> Value:
    """One of the groups that lie along the first axis."""
    return reshape(slice_axis(v, 0, g, g + 1), v.shape[1:])

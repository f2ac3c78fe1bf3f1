"""Which element of a value is meant: one index per axis, followed through data movement."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from lstm_ir.backends.kernels.body import instead
from lstm_ir.backends.kernels.body.tuned import MAX_LEADING
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.location import Loc
from lstm_ir.ir.spread import regrouped


class RefusedError(Exception):
    """The body cannot become a kernel; says which op and why, and what to write instead."""

    def __init__(self, why: str, value: Value | None = None, write: str = "") -> None:
        place = "" if value is None else f" (`{value.op}` at {value.node.loc})"
        super().__init__(why + place)
        self.made = None if value is None or "grad" not in value.node.loc.via else value.node.loc.place
        self.write = write

    def of_loop(self, loop: Loc) -> str:
        """The reason and the advice for the loop there; the user wrote none of what `li.grad` makes, but its lines."""
        if "grad" not in loop.via:
            return f"{self}; instead: {self.write}" if self.write else str(self)
        if self.made is not None:
            how = f"to change them, write the forward loop otherwise at {self.made}"
            return f"{self}; li.grad made this loop and this op; {how}"
        made = f"{self}; li.grad made this loop of the forward loop at {loop.place}"
        return f"{made}; there, instead: {self.write}" if self.write else made


class TwoOrdersError(RefusedError):
    """A sum whose value decides something would be made in two orders, so that `x > x` might hold."""

    def __init__(self, value: Value, write: str) -> None:
        super().__init__("a sum that is compared, in two orders", value, write)
        self.node = value.node


class PieceBoundaryError(Exception):
    """The window of columns spans two pieces: start it anew at `offset` columns from its first."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class CutTurns(NamedTuple):
    """So many turns of a loop come before a boundary: `turns`, or none where that is below 0, or `size` of them."""

    turns: Dim
    size: Dim


class TurnBoundaryError(Exception):
    """The turns of a loop span two pieces, of which the second begins at the index `place`.

    inside: whether that is surely none before the first turn, and none behind the last.
    """

    def __init__(self, level: int, place: Dim, inside: bool) -> None:
        super().__init__(level, place)
        self.level, self.place, self.inside = level, place, inside

    def parts(self, access: Sequence[Index], cut: Cut) -> list[tuple[Index, ...]]:
        """An access before the boundary and behind it; where none of its loops counts these turns others cut theirs."""
        if all(not isinstance(at, LoopAxis) or at.level != self.level for at in access):
            raise self
        return [tuple(self._part(at, cut, first) for at in access) for first in (True, False)]

    def _part(self, at: Index, cut: Cut, first: bool) -> Index:
        if not isinstance(at, LoopAxis) or at.level != self.level:
            return at
        turns = dims.add(self.place, dims.mul(at.start, -1))
        if not self.inside:
            turns = cut(turns, at.size)
        if first:
            return replace(at, size=turns, most=at.room, below=at.below | {self.place})
        rest, start = dims.add(at.size, dims.mul(turns, -1)), dims.add(at.start, turns)
        return replace(at, size=rest, start=start, most=at.room, above=at.above | {self.place})


@dataclass(frozen=True, slots=True)
class RowAxis:
    """The axis of independent rows (the batch)."""


@dataclass(frozen=True, slots=True)
class ColumnAxis:
    """The axis of columns; the window starts at `start`."""

    start: int


@dataclass(frozen=True, slots=True)
class LoopAxis:
    """An axis whose index the loop `level` inside of the kernel counts, `size` turns, from `start` on.

    The turns may be a part of an axis. Then `most` is how many the whole one has, and the part is known to lie below
    and above some indices, whatever the names of sizes stand for.
    """

    level: int
    size: Dim
    start: Dim = 0
    most: Dim | None = None
    below: frozenset[Dim] = frozenset()
    above: frozenset[Dim] = frozenset()

    @property
    def end(self) -> Dim:
        """The index behind the last one."""
        return dims.add(self.start, self.size)

    @property
    def room(self) -> Dim:
        """How many turns there are at most."""
        return self.size if self.most is None else self.most

    def begins_behind(self, place: Dim) -> bool:
        """Whether no turn has an index below `place`."""
        return any(reaches(d, place) for d in (self.start, *self.above))

    def ends_before(self, place: Dim) -> bool:
        """Whether all turns have indices below `place`."""
        return any(reaches(place, d) for d in (self.end, *self.below))

    def moved(self, by: Dim) -> LoopAxis:
        """So many elements further."""
        below, above = (frozenset(dims.add(d, by) for d in known) for known in (self.below, self.above))
        return replace(self, start=dims.add(self.start, by), below=below, above=above)

    @property
    def turns(self) -> LoopAxis:
        """The loop alone."""
        return LoopAxis(self.level, self.size, most=self.most)


@dataclass(frozen=True, slots=True)
class NamedIndex:
    """One element of an axis, whose index depends on the call's sizes: the last one of a named size."""

    place: Dim


@dataclass(frozen=True, slots=True)
class PickedAxis:
    """The axis of a table whose index a number of the row says."""


Index: TypeAlias = "int | RowAxis | ColumnAxis | LoopAxis | NamedIndex | PickedAxis"
Access: TypeAlias = "tuple[Index, ...]"
ROW = RowAxis()
Cut: TypeAlias = "Callable[[Dim, Dim], Dim]"
"""What names so many turns, where there may be fewer, or none: the first number, moved between 0 and the second."""


def leading_indices(sizes: Sequence[Dim], around: Sequence[Index] = ()) -> list[tuple[int | LoopAxis, ...]]:
    """Every index of leading axes of these sizes; named sizes, and many, are those of loops, long ones first.

    around: an access whose loops stand around these.
    """
    written = {i: n for i, n in enumerate(sizes) if isinstance(n, int)}
    while math.prod(written.values()) > MAX_LEADING:
        del written[max(written, key=lambda i: written[i])]
    level = max((at.level + 1 for at in around if isinstance(at, LoopAxis)), default=0)
    out: list[tuple[int | LoopAxis, ...]] = [()]
    for i, n in enumerate(sizes):
        if i in written:
            out = [(*o, k) for o in out for k in range(written[i])]
        else:
            out = [(*o, LoopAxis(level, n)) for o in out]
            level += 1
    return out


def reaches(a: Dim, b: Dim) -> bool:
    """Whether a >= b, whatever the names stand for."""
    return dims.at_least(dims.add(a, dims.mul(b, -1)), 0) is True


def loops_of(access: Iterable[Index]) -> tuple[LoopAxis, ...]:
    """The loops that count indices of an access, from the outermost on, without where they start."""
    found = {at.level: at.turns for at in access if isinstance(at, LoopAxis)}
    return tuple(found[level] for level in sorted(found))


def moved(at: Index, by: Dim) -> Index:
    """An index so many elements further."""
    if isinstance(at, ColumnAxis):
        assert isinstance(by, int)
        return ColumnAxis(at.start + by)
    if isinstance(at, LoopAxis):
        return at.moved(by)
    assert isinstance(at, (int, NamedIndex))
    place = dims.add(at.place if isinstance(at, NamedIndex) else at, by)
    return place if isinstance(place, int) else NamedIndex(place)


def through_broadcast(v: Value, access: Access) -> Access:
    """The operand's access of `broadcast_in_dim`."""
    (x,) = v.node.inputs
    places = v.node.attrs["broadcast_dimensions"]
    return tuple(0 if x.shape[a] == 1 and v.shape[d] != 1 else access[d] for a, d in enumerate(places))


def through_slice(v: Value, access: Access) -> Access:
    """The operand's access of `slice`."""
    (x,) = v.node.inputs
    a = v.node.attrs
    out: list[Index] = []
    for axis, at in enumerate(access):
        start, stride = a["start_indices"][axis], a["strides"][axis]
        if v.shape[axis] == x.shape[axis] and start == 0 and stride == 1:
            out.append(at)
            continue
        if isinstance(at, RowAxis) and v.shape[axis] == 1:
            at = 0
        if isinstance(at, ColumnAxis) and v.shape[axis] == 1 and not isinstance(start, int):
            at = at.start  # the only column
        if isinstance(at, RowAxis) or stride != 1 or (isinstance(at, ColumnAxis) and not isinstance(start, int)):
            raise RefusedError("a slice of rows, or with a stride", v, instead.SLICE)
        out.append(moved(at, start))
    return _with_row(x, access, out)


def _with_row(x: Value, access: Access, out: list[Index]) -> Access:
    """A single row may stand on any axis of size 1: on one of `x` where moving the data lost it."""
    if ROW in access and ROW not in out:
        for axis in range(len(out) - 2, -1, -1):
            if x.shape[axis] == 1 and out[axis] == 0:
                out[axis] = ROW
                break
    return tuple(out)


def through_transpose(v: Value, access: Access) -> Access:
    """The operand's access of `transpose`."""
    p = v.node.attrs["permutation"]
    out: list[Index] = [0] * len(p)
    for axis, source in enumerate(p):
        out[source] = access[axis]
    return tuple(out)


def through_concatenate(v: Value, access: Access, width: int) -> tuple[Value, Access]:
    """The piece that holds the window, and its access."""
    axis = v.node.attrs["dimension"]
    at = access[axis]
    if isinstance(at, RowAxis):
        raise RefusedError("joins rows", v, instead.JOIN_ROWS)
    if isinstance(at, LoopAxis):
        piece, turns = _piece_of_turns(v, axis, at)
        return piece, (*access[:axis], turns, *access[axis + 1 :])
    if isinstance(at, NamedIndex):
        try:
            piece, turn = _piece_of_turns(v, axis, LoopAxis(0, 1, at.place))
        except TurnBoundaryError:
            raise RefusedError("joins pieces whose sizes are named", v, instead.NUMBERS) from None
        return piece, (*access[:axis], moved(0, turn.start), *access[axis + 1 :])
    assert not isinstance(at, PickedAxis)
    start, size = (at, 1) if isinstance(at, int) else (at.start, width)
    low = 0
    for piece in v.node.inputs:
        n = piece.shape[axis]
        if not isinstance(n, int):
            raise RefusedError("joins pieces whose sizes are named", v, instead.NUMBERS)
        if start < low + n:
            if start + size > low + n:
                raise PieceBoundaryError(low + n - start)
            return piece, (*access[:axis], moved(at, -low), *access[axis + 1 :])
        low += n
    raise RefusedError("a window outside the value", v)


def _piece_of_turns(v: Value, axis: int, at: LoopAxis) -> tuple[Value, LoopAxis]:
    """The piece that holds all turns of a loop, and the turns there; sizes may be named."""
    low: Dim = 0
    *others, last = v.node.inputs
    for piece in others:
        high = dims.add(low, piece.shape[axis])
        if not at.begins_behind(high):
            if at.ends_before(high):
                break
            # No size is below 0, and an access lies within its value.
            begins, ends = at.start == low or reaches(high, at.start), at.end == v.shape[axis] or reaches(at.end, high)
            raise TurnBoundaryError(at.level, high, begins and ends)
        low = high
    else:
        piece = last
    return piece, at.moved(dims.mul(low, -1))


def through_reshape(v: Value, access: Access, width: int) -> Access:
    """The operand's access of `reshape`: axes are split, joined, or of size 1."""
    (x,) = v.node.inputs
    out: list[Index] = []
    groups = regrouped(x.shape, v.shape)
    if groups is None:
        raise RefusedError("a reshape that mixes rows with columns", v, instead.RESHAPE)
    for old, new in groups:
        out.extend(_regrouped([x.shape[a] for a in old], [(v.shape[a], access[a]) for a in new], width, v))
    return _with_row(x, access, out)


def _regrouped(old: list[Dim], new: list[tuple[Dim, Index]], width: int, v: Value) -> list[Index]:
    if not old:
        return []
    if len(old) == 1 and len(new) == 1:
        return [new[0][1]]
    if not new:
        return [0] * len(old)
    if not all(isinstance(d, int) for d in (*old, *(d for d, _ in new))):
        kept = iter([at for d, at in new if d != 1])
        if [d for d in old if d != 1] != [d for d, _ in new if d != 1]:
            raise RefusedError("a reshape that joins or cuts axes of named sizes", v, instead.RESHAPE)
        return [0 if d == 1 else next(kept) for d in old]
    offset, last_one = 0, new[-1][1]
    for n, (size, at) in enumerate(new):
        if isinstance(at, RowAxis) or (not isinstance(at, int) and n != len(new) - 1):
            raise RefusedError("a reshape that mixes rows with columns", v, instead.RESHAPE)
        if isinstance(at, NamedIndex):
            raise RefusedError("a reshape of an element whose index is a named size", v, instead.RESHAPE)
        assert not isinstance(at, PickedAxis)
        offset = offset * int(size) + int(at if isinstance(at, int) else at.start)  # type: ignore[arg-type]
    sizes = [int(s) for s in old]  # type: ignore[arg-type]
    out: list[Index] = []
    for n in reversed(sizes):
        out.append(offset % n)
        offset //= n
    out.reverse()
    if not isinstance(last_one, int):
        last = out[-1]
        assert isinstance(last, int)
        if isinstance(last_one, LoopAxis) and last + last_one.size > sizes[-1]:
            raise RefusedError(f"a reshape that cuts an axis of {last_one.size} leading indices", v, instead.RESHAPE)
        if last + width > sizes[-1] and isinstance(last_one, ColumnAxis):
            raise PieceBoundaryError(sizes[-1] - last)
        assert isinstance(last_one, (ColumnAxis, LoopAxis))
        out[-1] = moved(last_one, last - last_one.start)
    return out

"""Which element of a carry an element of another value is made of: axis by axis, through the ops of a body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.spread import product_axes, regrouped


@dataclass(frozen=True, slots=True)
class Place:
    """Index i of an axis stands for index start + i of a carry's axis; `part`: of one that was split in two."""

    axis: int
    start: Dim
    size: Dim
    part: str = ""  # "outer" or "inner"
    split: Dim = 0  # size of the outer part


ELSEWHERE = Place(-1, 0, 0)
"""An axis of which nothing is known but that it is made of carries."""

Places = tuple[Place | None, ...]
"""By axis; None: the same at every index."""


def own(shape: Sequence[Dim]) -> Places:
    """A carry's own."""
    return tuple(Place(a, 0, d) for a, d in enumerate(shape))


def joined(places: Sequence[Places]) -> Places:
    """Of an elementwise op over values with these."""
    out: list[Place | None] = []
    for axis in zip(*places, strict=True):
        kinds = {p for p in axis if p is not None}
        out.append(None if not kinds else kinds.pop() if len(kinds) == 1 else ELSEWHERE)
    return tuple(out)


def lost(v: Value) -> Places:
    """Of a value whose elements come from anywhere."""
    return (ELSEWHERE,) * v.rank


def moved(n: Node, places: Sequence[Places | None]) -> Places | None:
    """Of the result of an op that moves elements; None for another op."""
    v = n.values[0]
    if n.op.name == "concatenate":
        return _joined_along(n, places)
    (p,) = (x for x in places[:1])
    if p is None or n.op.name not in ("transpose", "broadcast_in_dim", "slice", "reshape", "convert"):
        return None
    if n.op.name == "transpose":
        return tuple(p[a] for a in n.attrs["permutation"])
    if n.op.name == "broadcast_in_dim":
        return _repeated(n, p)
    if n.op.name == "slice":
        return tuple(_window(x, *cut) for x, cut in zip(p, _cuts(n), strict=True))
    return p if n.op.name == "convert" else _reshaped(n.inputs[0].shape, v.shape, p)


def _repeated(n: Node, p: Places) -> Places:
    (x,), v = n.inputs, n.values[0]
    out: list[Place | None] = [None] * v.rank
    for a, to in enumerate(n.attrs["broadcast_dimensions"]):
        same = x.shape[a] == v.shape[to]
        out[to] = p[a] if same or p[a] is None else ELSEWHERE
    return tuple(out)


def _cuts(n: Node) -> list[tuple[Dim, Dim, Any, Dim]]:
    a = n.attrs
    return list(zip(a["start_indices"], a["limit_indices"], a["strides"], n.inputs[0].shape, strict=True))


def _window(p: Place | None, start: Dim, limit: Dim, stride: int, size: Dim) -> Place | None:
    if p is None or (start == 0 and limit == size and stride == 1):
        return p
    known = isinstance(start, int) and isinstance(limit, int) and isinstance(p.start, int)
    if p is ELSEWHERE or p.part or stride != 1 or not known:
        return ELSEWHERE
    return replace(p, start=p.start + start, size=limit - start)


def _joined_along(n: Node, places: Sequence[Places | None]) -> Places:
    """Windows that come back to where they were, beside what is made of no carry."""
    axis, v = n.attrs["dimension"], n.values[0]
    rest = joined([(*p[:axis], None, *p[axis + 1 :]) for p in places if p is not None])
    found: set[Place] = set()
    at: Dim = 0
    for x, p in zip(n.inputs, places, strict=True):
        here = None if p is None else p[axis]
        known = isinstance(at, int) and isinstance(x.shape[axis], int)
        if here is not None:
            whole = here is not ELSEWHERE and not here.part and known and isinstance(here.start, int)
            found.add(Place(here.axis, here.start - at, v.shape[axis]) if whole else ELSEWHERE)
        at = at + x.shape[axis] if known else v.shape[axis]
    alone = None if not found else found.pop() if len(found) == 1 else ELSEWHERE
    return (*rest[:axis], alone, *rest[axis + 1 :])


def _reshaped(old: Sequence[Dim], new: Sequence[Dim], p: Places) -> Places:
    groups = regrouped(old, new)
    if groups is None:
        return (ELSEWHERE,) * len(new)
    out: list[Place | None] = [None] * len(new)
    for a, b in groups:
        for to, place in zip(b, _group([p[i] for i in a], [new[j] for j in b]), strict=True):
            out[to] = place
    return tuple(out)


def _group(p: list[Place | None], new: list[Dim]) -> list[Place | None]:
    if all(x is None for x in p):
        return [None] * len(new)
    first = p[0]
    if len(p) == 1 and len(new) == 1:
        return [first]
    if first is not None and first is not ELSEWHERE:
        if len(p) == 1 and len(new) == 2 and not first.part:
            return [replace(first, part=part, split=new[0]) for part in ("outer", "inner")]
        whole = replace(first, part="", split=0)
        if len(p) == 2 and len(new) == 1 and first.part == "outer" and p[1] in (None, replace(first, part="inner")):
            return [whole]
    return [ELSEWHERE] * len(new)


def of_product(n: Node, side: int, p: Places) -> Places:
    """Of a product whose operand `side` has these: what was summed in windows stays in its window."""
    own_axes, other = product_axes(n)[side], product_axes(n)[1 - side]
    word = ("lhs", "rhs")[side]
    summed = [x for a in n.attrs[f"{word}_contracting_dimensions"] if (x := p[a]) is not None]
    out: list[Place | None] = [None] * n.values[0].rank
    batching = n.attrs[f"{('rhs', 'lhs')[side]}_batching_dimensions"]
    for a, to in other.items():
        if a not in batching:
            same = [x for x in summed if x.size == n.types[0].shape[to] and not x.part]
            out[to] = same[0] if len(same) == len(summed) == 1 else None
    for a, to in own_axes.items():
        out[to] = p[a]
    return tuple(out)

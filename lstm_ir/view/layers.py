"""Places of boxes in layers, and the ways of edges between them: no edge runs under a box.

Sugiyama's steps: ranks by the longest path, an order in each layer by the neighbours' places, places by least squares.
An edge over several layers passes each layer it skips in a lane of its own. The curves lie in the gaps between layers,
where there are no boxes: the hull of a curve is its gap.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

BESIDE, LANE, GAP = 12.0, 10.0, 18.0  # pixels: between boxes, for a passing edge, between layers
SWEEPS, ROUNDS = 8, 40  # over the order, over the places
STRAIGHT = 8.0  # how much more a piece of a long edge is pulled than another
MIDDLES, WIDER, MANY = (0.02, 0.2, 0.6, 1.5), 1.04, 4000  # pulls to the middle, tried where the whole is wider; hops
Point = tuple[float, float]


@dataclass(eq=False)
class Item:
    """A box: its size, where edges begin and end (from its left), and, once arranged, its place."""

    w: float
    h: float
    tops: tuple[float, ...] = ()
    bottoms: tuple[float, ...] = ()
    where: str = ""  # "first" or "last": the layer that it must be in
    x: float = 0.0
    y: float = 0.0


@dataclass(frozen=True)
class DrawnEdge:
    """An edge from port `out` of item `a` to port `into` of item `b`."""

    a: int
    out: int
    b: int
    into: int


@dataclass
class Arranged:
    """The size of the whole, and each link's way: points that are joined by vertical lines and curves in turn."""

    width: float
    height: float
    ways: list[list[Point]]


@dataclass(eq=False)
class _Lane:
    """Where an edge passes a layer."""

    w: float = LANE
    x: float = 0.0


@dataclass
class _Layer:
    members: list[Item | _Lane] = field(default_factory=list)
    y: float = 0.0
    h: float = 0.0


_Seat = Item | _Lane
_Hop = tuple[_Seat, float, _Seat, float]  # from a seat, at an offset, to a seat of the next layer, at an offset


def arrange(items: Sequence[Item], links: Sequence[DrawnEdge]) -> Arranged:
    """Places for the items, which are in an order that the links follow."""
    rank = _ranks(items, links)
    layers = [_Layer() for _ in range(max(rank, default=0) + 1)]
    for item, r in zip(items, rank, strict=True):
        layers[r].members.append(item)
    trunks: dict[tuple[int, int], list[_Lane]] = {}
    chains = [_chain(items, link, rank, layers, trunks.setdefault((link.a, link.out), [])) for link in links]
    hops: list[list[_Hop]] = [[] for _ in layers]
    for link, chain in zip(links, chains, strict=True):
        first = rank[link.b] - len(chain) + 1
        for r, (a, b) in enumerate(pairwise(chain), first):
            start = a.bottoms[link.out] if isinstance(a, Item) else LANE / 2
            hops[r].append((a, start, b, b.tops[link.into] if isinstance(b, Item) else LANE / 2))
    _order(layers, hops)
    width = _spread(layers, hops)
    height = _stack(layers, hops)
    ways = [_way(items, link, chain, rank, layers) for link, chain in zip(links, chains, strict=True)]
    return Arranged(width, height, ways)


def _ranks(items: Sequence[Item], links: Sequence[DrawnEdge]) -> list[int]:
    """The longest path to each item; one that reads no more than it gives stands right above its first reader."""
    rank = [0] * len(items)
    readers: list[list[int]] = [[] for _ in items]
    outs: list[set[int]] = [set() for _ in items]
    reads = [0] * len(items)
    for link in sorted(links, key=lambda k: k.b):
        rank[link.b] = max(rank[link.b], rank[link.a] + 1)
        readers[link.a].append(link.b)
        outs[link.a].add(link.out)
        reads[link.b] += 1
    last = max(rank, default=0)
    for i, item in enumerate(items):
        if item.where == "last":
            rank[i] = max(last, 1)
    for i in reversed(range(len(items))):
        if readers[i] and items[i].where != "first" and reads[i] <= len(outs[i]):
            rank[i] = min(rank[j] for j in readers[i]) - 1
    return rank


def _chain(
    items: Sequence[Item], link: DrawnEdge, rank: list[int], layers: list[_Layer], trunk: list[_Lane]
) -> list[_Seat]:
    """The seats of an edge. Edges of one port share their lanes, the trunk: one begins where it leaves the others."""
    need, have = rank[link.b] - rank[link.a] - 1, len(trunk)
    for r in range(rank[link.a] + 1 + have, rank[link.b]):
        trunk.append(_Lane())
        layers[r].members.append(trunk[-1])
    shared = min(need, have)
    first: _Seat = trunk[shared - 1] if shared else items[link.a]
    return [first, *trunk[shared:need], items[link.b]]


def _order(layers: list[_Layer], hops: list[list[_Hop]]) -> None:
    """Sweeps down and up, each layer sorted by the mean place of its neighbours; the order with fewest crossings."""
    best = [list(la.members) for la in layers]
    least = _crossings(layers, hops)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for r in range(1, len(layers)) if down else range(len(layers) - 2, -1, -1):
            near: dict[_Seat, list[float]] = {}
            beside = layers[r - 1 if down else r + 1].members
            at = {m: float(i) for i, m in enumerate(beside)}
            for a, start, b, end in hops[r - 1 if down else r]:
                other, offset, own = (a, start, b) if down else (b, end, a)
                near.setdefault(own, []).append(at[other] + offset / max(other.w, 1.0))
            was = {m: i * len(beside) / max(len(layers[r].members), 1) for i, m in enumerate(layers[r].members)}
            mean = {m: sum(near[m]) / len(near[m]) if m in near else was[m] for m in layers[r].members}
            layers[r].members.sort(key=mean.__getitem__)
        found = _crossings(layers, hops)
        if found < least:
            least, best = found, [list(la.members) for la in layers]
    for la, members in zip(layers, best, strict=True):
        la.members = members


def _crossings(layers: list[_Layer], hops: list[list[_Hop]]) -> int:
    total = 0
    at = {m: i for la in layers for i, m in enumerate(la.members)}
    for between in hops:
        ends: list[tuple[int, float]] = []
        pairs = sorted(((at[a], s), (at[b], e)) for a, s, b, e in between)
        for _, end in pairs:
            total += len(ends) - bisect_left(ends, (end[0], end[1] + 1e-9))
            insort(ends, end)
    return total


def _spread(layers: list[_Layer], hops: list[list[_Hop]]) -> float:
    """Places from left to right: close to the neighbours' ports, in order, not nearer than allowed. The whole width.

    Layers that drift apart are pulled to one middle, the harder the wider the whole is beside its widest layer.
    """
    least = max((sum(m.w + BESIDE for m in la.members) - BESIDE for la in layers), default=0.0)
    found = 0.0
    for middle in MIDDLES if sum(map(len, hops)) < MANY else MIDDLES[-1:]:
        _balance(layers, hops, middle)
        left = min((m.x for la in layers for m in la.members), default=0.0)
        for la in layers:
            for m in la.members:
                m.x -= left
        found = max((m.x + m.w for la in layers for m in la.members), default=0.0)
        if found <= WIDER * least:
            break
    return found


def _balance(layers: list[_Layer], hops: list[list[_Hop]], middle: float) -> None:
    for la in layers:
        x = 0.0
        for m in la.members:
            m.x = x
            x += m.w + BESIDE
        for m in la.members:
            m.x -= x / 2
    for sweep in range(ROUNDS):
        down = sweep % 2 == 0
        for r in range(len(layers)) if down else reversed(range(len(layers))):
            pulls: dict[_Seat, list[tuple[float, float]]] = {
                m: [] if isinstance(m, _Lane) else [(-m.w / 2, middle)] for m in layers[r].members
            }
            for a, start, b, end in hops[r - 1] if r else ():
                pulls[b].append((a.x + start - end, _strength(a, b)))
            for a, start, b, end in hops[r]:
                pulls[a].append((b.x + end - start, _strength(a, b)))
            _assign_coordinates(layers[r].members, pulls)


def _strength(a: _Seat, b: _Seat) -> float:
    """Long edges are to be straight, short ones may bend."""
    return STRAIGHT ** (isinstance(a, _Lane) + isinstance(b, _Lane))


def _assign_coordinates(members: list[_Seat], pulls: dict[_Seat, list[tuple[float, float]]]) -> None:
    """The least squares places in this order: neighbours that would overlap form blocks, which move as one."""
    blocks: list[tuple[float, float, int]] = []  # mean place of the first, weight, members
    offset = 0.0
    offsets = []
    for m in members:
        weight = sum(s for _, s in pulls[m])
        wish = sum(x * s for x, s in pulls[m]) / weight
        offsets.append(offset)
        block = (wish - offset, weight, 1)
        offset += m.w + (LANE if isinstance(m, _Lane) else BESIDE)
        while blocks and blocks[-1][0] >= block[0]:
            at, w, n = blocks.pop()
            total = w + block[1]
            block = ((at * w + block[0] * block[1]) / total, total, n + block[2])
        blocks.append(block)
    i = 0
    for at, _, n in blocks:
        for m, by in zip(members[i : i + n], offsets[i : i + n], strict=True):
            m.x = at + by
        i += n


def _stack(layers: list[_Layer], hops: list[list[_Hop]]) -> float:
    """Layers from top to bottom; a gap is taller where edges go far to the side. The whole height."""
    y = 0.0
    for la, between in zip(layers, hops, strict=True):
        la.y, la.h = y, max((m.h for m in la.members if isinstance(m, Item)), default=0.0)
        for m in la.members:
            if isinstance(m, Item):
                m.y = y
        far = max((abs(a.x + s - b.x - e) for a, s, b, e in between), default=0.0)
        y += la.h + GAP + min(24.0, far / 25)
    return layers[-1].y + layers[-1].h if layers else 0.0


def _way(
    items: Sequence[Item], link: DrawnEdge, chain: list[_Seat], rank: list[int], layers: list[_Layer]
) -> list[Point]:
    """Vertical from point 0 to 1, a curve from 1 to 2, vertical from 2 to 3, and so on."""
    b, first = items[link.b], chain[0]
    r = rank[link.b] - len(chain) + 1
    low = layers[r].y + layers[r].h
    if isinstance(first, Item):
        x = first.x + first.bottoms[link.out]
        way = [(x, first.y + first.h), (x, low)]
    else:
        way = [(first.x + LANE / 2, low)] * 2
    for seat in chain[1:-1]:
        r += 1
        x = seat.x + LANE / 2
        way += [(x, layers[r].y), (x, layers[r].y + layers[r].h)]
    return [*way, (b.x + b.tops[link.into], b.y)]

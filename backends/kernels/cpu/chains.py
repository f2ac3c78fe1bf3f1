"""Sweeps that run block by block, one after the other, without a wait between them.

    products of all rows, their mean, their variance, the new state:  for each block of columns

What a sweep reads of a computed row at its own columns alone was made by the same member, which had all rows of that
block. So where rows meet, and each column keeps to itself, members wait for each other once in a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lstm_ir.backends.kernels.body.access import ColumnAxis
from lstm_ir.backends.kernels.body.atoms import Atom
from lstm_ir.backends.kernels.body.plan import Component, LoopPlan, Sweep, below, walk
from lstm_ir.backends.kernels.cpu.sums import Tile

Chain = list[Sweep]
_ACROSS = ("dot", "reduce", "turns")  # they read other columns than their own


def chains(plan: LoopPlan, c: Component, tiles: Mapping[Sweep, Tile]) -> list[Chain]:
    """The sweeps of a component in the order of their work; those of a chain have the same blocks."""
    if not plan.meet:
        return [[s] for s in c.sweeps]
    made = {r.dest.index: s for s in c.sweeps for r in s.roots if r.dest.kind == "temp"}
    out: list[Chain] = []
    place: dict[Sweep, int] = {}
    for s in c.sweeps:
        reads = dict.fromkeys(made[i] for i in _temps(s))
        first = max((place[w] for w in reads), default=0)
        fit = (k for k in range(first, len(out)) if _joins(s, out[k], tiles))
        at = next((k for k in fit if all(place[w] < k or _local(s, w) for w in reads)), len(out))
        if at == len(out):
            out.append([])
        out[at].append(s)
        place[s] = at
    return out


def shared(found: Sequence[Chain]) -> list[Chain]:
    """Those that members share out."""
    return [c for c in found if not c[0].own]


def alike(plan: LoopPlan, tiles: dict[Sweep, Tile]) -> dict[Sweep, Tile]:
    """The tiles, with the blocks of those that have products for all of their width, where rows meet."""
    if not plan.meet:
        return tiles
    wide = {s.width: t.q for s, t in tiles.items() if s.dots}
    return {s: t.whole(t.q if s.dots else wide.get(s.width, t.q)) for s, t in tiles.items()}


def _joins(s: Sweep, chain: Chain, tiles: Mapping[Sweep, Tile]) -> bool:
    other = chain[0]
    return not (s.own or other.own) and s.width == other.width and tiles[s].q == tiles[other].q


def _temps(s: Sweep) -> Iterator[int]:
    """Computed rows that a sweep reads."""
    for a in _loads(s):
        assert a.source is not None
        yield a.source.index


def _loads(s: Sweep) -> Iterator[Atom]:
    seen: set[Atom] = set()
    for r in s.roots:
        yield from (a for a in walk(r.atom, seen) if a.source is not None and a.source.kind == "temp")


def _local(s: Sweep, maker: Sweep) -> bool:
    """Whether a block of a sweep reads of what another one made the same block alone."""
    if not s.width:
        return True  # there is one block
    made = {r.dest.index for r in maker.roots if r.dest.kind == "temp"}
    across = {x for r in s.roots for a in walk(r.atom) if a.op in _ACROSS for b in below(a) for x in walk(b)}
    mine = [a for a in _loads(s) if a.source is not None and a.source.index in made]
    return all(a not in across and bool(a.access) and a.access[-1] == ColumnAxis(0) for a in mine)

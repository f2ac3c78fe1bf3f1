"""All results of a place: loops inside of the kernel that count the same indices are one.

A step of a selective scan stores `s[n,:]` and sums `s[n,:] c[n]`: one loop over n computes a row of s once for both.
What a fold needs that another one gives comes in a later loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from lstm_ir.backends.kernels.body.access import Access, LoopAxis
from lstm_ir.backends.kernels.body.atoms import WHOLE, Atom
from lstm_ir.backends.kernels.body.plan import Root, below
from lstm_ir.backends.kernels.text.evaluate import Evaluator, Sums, order
from lstm_ir.backends.kernels.text.memory import ElementPlace
from lstm_ir.backends.kernels.text.statements import TextOperand

Loops = tuple[LoopAxis, ...]


@dataclass
class _Nest:
    """What one nest of loops makes."""

    folds: list[Atom] = field(default_factory=list)
    roots: list[Root] = field(default_factory=list)


def write_roots(
    e: Evaluator, roots: Sequence[Root], place: ElementPlace, wide: bool, sums: Sums | None,
    known: dict[Atom, TextOperand],
) -> None:  # fmt: skip
    """Compute and store results; `known` holds what was computed there already."""
    for nest in _stages(roots):
        for loops, made in nest.items():
            _write(e, loops, made, place, wide, sums, known)
    plain = [r for r in roots if not r.loops]
    values = [e.value(r.atom, place, wide, sums, known) for r in plain]
    for r, v in zip(plain, values, strict=True):
        e.store(v, r.atom.dtype, r.dest, r.access, place, wide)


def _stages(roots: Sequence[Root]) -> list[dict[Loops, _Nest]]:
    """Nests by how many folds lie one below the other in what they compute."""
    depth: dict[Atom, int] = {}
    out: list[dict[Loops, _Nest]] = []

    def nest(stage: int, loops: Loops) -> _Nest:
        while len(out) <= stage:
            out.append({})
        return out[stage].setdefault(loops, _Nest())

    for r in roots:
        for a in order(r.atom, _seen):
            if a not in depth:
                depth[a] = max((depth[x] for x in _seen(a)), default=0) + (a.op == "fold")
                if a.op == "fold" and not a.loops:
                    nest(depth[a] - 1, a.access).folds.append(a)  # type: ignore[arg-type]
        if r.loops:
            nest(depth[r.atom], r.loops).roots.append(r)
    return out


def _seen(a: Atom) -> list[Atom]:
    """What is computed at the same place."""
    return [] if a.op in WHOLE and a.op != "fold" else below(a)


def _write(
    e: Evaluator, loops: Loops, nest: _Nest, place: ElementPlace, wide: bool, sums: Sums | None,
    known: dict[Atom, TextOperand],
) -> None:  # fmt: skip
    """The loops of a nest; the totals of its folds are known then."""
    t = e.t
    for a in (*(f.args[0] for f in nest.folds), *(r.atom for r in nest.roots)):
        e.steady(a, place, sums, known)
    starts = [e.fold_start(f) for f in nest.folds]
    totals, kinds = [v for v, _ in starts], [k for _, k in starts]
    made: list[list[TextOperand]] = []
    here = place
    lanes = not wide and t.lanes > 0 and _in_lanes(nest, loops[-1].level)
    with ExitStack() as plain:
        for loop in loops:
            by = t.lanes if lanes and loop is loops[-1] else 1
            bounds = t.index(0), t.extent(loop.size), t.index(by)
            if kinds:
                at, inside, out = t.carried(*bounds, totals, kinds)
                totals = [*inside]
                made.append([*out])
            else:
                at = plain.enter_context(t.loop(*bounds))
            here = here.counted(loop.level, at)
            if by > 1:
                left = t.binary("subi", t.extent(loop.size), at)
                here = replace(here, mask=t.mask(left), lanes=loop.level)
        totals = _inside(e, nest, here, wide or lanes, sums, dict(known), totals)
    for results in reversed(made):
        t.close(totals, kinds)
        totals = [*results]
    known.update(zip(nest.folds, totals, strict=True))


def _in_lanes(nest: _Nest, level: int) -> bool:
    """Whether turns of a loop may be the lanes of vectors: it counts the last axis of all that is read and written."""
    if nest.folds:
        return False
    read = [a for r in nest.roots for a in order(r.atom) if any(at.level == level for at in a.loops)]
    leaves = [a for a in read if a.op in ("load", "pick", *WHOLE)]
    rows = [r.access for r in nest.roots] + [a.access for a in leaves]
    return all(a.op == "load" for a in leaves) and all(_counted_axes(at, level) == [len(at) - 1] for at in rows)


def _counted_axes(access: Access, level: int) -> list[int]:
    """Axes that a loop counts."""
    return [i for i, at in enumerate(access) if isinstance(at, LoopAxis) and at.level == level]


def _inside(
    e: Evaluator, nest: _Nest, here: ElementPlace, wide: bool, sums: Sums | None, known: dict[Atom, TextOperand],
    totals: Sequence[TextOperand],
) -> list[TextOperand]:  # fmt: skip
    """One turn: stores rows, and gives the next totals."""
    values = [e.value(r.atom, here, wide, sums, known) for r in nest.roots]
    inner = [e.value(f.args[0], here, e.across(f), sums, known) for f in nest.folds]
    for r, v in zip(nest.roots, values, strict=True):
        e.store(v, r.atom.dtype, r.dest, r.access, here, wide)
    return [e.folded(f, total, v) for f, total, v in zip(nest.folds, totals, inner, strict=True)]

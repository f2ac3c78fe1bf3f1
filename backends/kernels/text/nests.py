"""All results of a place: loops inside of the kernel that count the same indices are one.

A step of a selective scan stores `s[n,:]` and sums `s[n,:] c[n]`: one loop over n computes a row of s once for both.
What a fold needs that another one gives comes in a later loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from lstm_ir.backends.kernels.body.access import LoopAxis
from lstm_ir.backends.kernels.body.atoms import Atom
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
    return [] if a.op in ("dot", "reduce") else below(a)


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
    with ExitStack() as plain:
        for loop in loops:
            bounds = t.index(0), t.extent(loop.size), t.index(1)
            if kinds:
                at, inside, out = t.carried(*bounds, totals, kinds)
                totals = [*inside]
                made.append([*out])
            else:
                at = plain.enter_context(t.loop(*bounds))
            here = here.counted(loop.level, at)
        totals = _inside(e, nest, here, wide, sums, dict(known), totals)
    for results in reversed(made):
        t.close(totals, kinds)
        totals = [*results]
    known.update(zip(nest.folds, totals, strict=True))


def _inside(
    e: Evaluator, nest: _Nest, here: ElementPlace, wide: bool, sums: Sums | None, known: dict[Atom, TextOperand],
    totals: Sequence[TextOperand],
) -> list[TextOperand]:  # fmt: skip
    """One turn: stores rows, and gives the next totals."""
    values = [e.value(r.atom, here, wide, sums, known) for r in nest.roots]
    inner = [e.value(f.args[0], here, f.cols, sums, known) for f in nest.folds]
    for r, v in zip(nest.roots, values, strict=True):
        e.store(v, r.atom.dtype, r.dest, r.access, here, wide)
    return [e.folded(f, total, v) for f, total, v in zip(nest.folds, totals, inner, strict=True)]

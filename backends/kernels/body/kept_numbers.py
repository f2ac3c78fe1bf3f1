"""Numbers that a loop of a named size counts: kept in scratch memory where they are read again and again.

    w[s] = exp(e[s] - top)        r[:] = sum_s w[s] m[s,:]

Each column of r reads w anew, so it is computed once for each s and kept. A result y[s] = log(w[s]) reads it once
in each turn of its own loop, and computes it there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lstm_ir.backends.kernels.body.atoms import Atom, Temp
from lstm_ir.backends.kernels.body.plan import Root, below

Rebuild = Callable[[Atom, dict[Atom, Atom], Callable[[Atom], Atom | None]], Atom]
_LOOPS = ("fold", "reduce", "over_rows", "turns")


class KeptNumbers:
    """Those of one body; `temps` are all its computed rows."""

    def __init__(self, temps: Sequence[Temp]) -> None:
        self.temps = temps
        self._kept: set[int] = set()

    def add(self, temp: Temp) -> None:
        """A number that is kept if something reads it again."""
        self._kept.add(temp.index)

    def inline(self, roots: Sequence[Root], rebuild: Rebuild) -> None:
        """Computes the others where they are read."""
        needed = self._needed(roots)
        if needed == self._kept:
            return
        done: dict[Atom, Atom] = {}

        def rule(a: Atom) -> Atom | None:
            if a.op in _LOOPS:
                return a
            temp = self._at_its_place(a)
            return None if temp is None or temp.index in needed else rebuild(temp.atom, done, rule)

        computed: list[Root | Temp] = [*roots, *self.temps]
        for one in computed:
            if not one.width:
                one.atom = rebuild(one.atom, done, rule)

    def _needed(self, roots: Sequence[Root]) -> set[int]:
        """Those that a fold, a reduction, each column of a row or another loop reads."""
        found: set[int] = set()
        for r in roots:
            levels = {at.level for at in r.loops}
            todo, seen = [(r.atom, r.width > 0)], set[tuple[Atom, bool]]()
            while todo:
                a, again = todo.pop()
                if (a, again) in seen:
                    continue
                seen.add((a, again))
                todo += [(x, again or a.op in _LOOPS) for x in below(a)]
                if a.source is None or a.source.kind != "temp":
                    continue
                temp = self.temps[a.source.index]
                here = self._at_its_place(a) is not None and {at.level for at in a.loops} == levels
                if temp.index in self._kept and (again or not here):
                    found.add(temp.index)
                todo.append((temp.atom, temp.width > 0))
        return found

    def _at_its_place(self, a: Atom) -> Temp | None:
        """Which number a load reads as it was computed."""
        if a.source is None or a.source.kind != "temp" or a.source.index not in self._kept:
            return None
        temp = self.temps[a.source.index]
        return temp if a.access == temp.access else None

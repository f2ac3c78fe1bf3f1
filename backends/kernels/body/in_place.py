"""Stacked rows that take the memory of scanned rows.

The loop that goes back in a gradient reads the gates of a step and gives as many cotangents, column
by column: written over the gates they need no memory of their own, and no cache line is fetched to
be overwritten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lstm_ir.backends.kernels.body.access import ROW, Access, ColumnAxis
from lstm_ir.backends.kernels.body.atoms import WHOLE
from lstm_ir.backends.kernels.body.plan import LoopPlan, Sweep, below, static_of, walk
from lstm_ir.ir.types import DType


@dataclass(frozen=True)
class _Window:
    """Columns start .. start + width of a row, read or written in one sweep."""

    sweep: Sweep
    row: int  # the axis of rows
    static: tuple[int, ...]
    start: int
    width: int

    @classmethod
    def of(cls, sweep: Sweep, access: Access) -> _Window:
        start = next((a.start for a in access if isinstance(a, ColumnAxis)), 0)
        row = access.index(ROW) if ROW in access else -1
        return cls(sweep, row, static_of(access), start, sweep.width)

    def spares(self, other: _Window) -> bool:
        """Whether a vector written here leaves alone what later vectors read in `other`."""
        if self.row != other.row:
            return False  # another row's, which may be written already
        if self.static != other.static:
            return True
        if self.sweep is other.sweep and self.start == other.start:
            return True  # a vector is stored after all that its columns need was read
        return self.start + self.width <= other.start or other.start + other.width <= self.start


def overwritten(plan: LoopPlan) -> dict[int, int]:
    """Stacked result -> the scanned operand over whose rows it may be written, as far as the kernel
    is concerned; what else reads that operand is the caller's to know."""
    loop, read = plan.loop, _reads(plan)
    out: dict[int, int] = {}
    for k, t in enumerate(loop.y_types):
        for j, x in enumerate(loop.x_types):
            alike = x == t and loop.x_reverse[j] == loop.y_reverse[k]
            same = alike and t.dtype not in (DType.i1, DType.u8, DType.u32)  # kept as other elements
            if same and j not in out.values() and _fits(plan, k, read[j]):
                out[k] = j
                break
    return out


def _fits(plan: LoopPlan, k: int, reads: list[_Window | None]) -> bool:
    writes = list(_writes(plan, k))
    if not reads or None in reads or any(w.width == 0 for w in writes) or _counted(plan, k):
        return False
    return all(w.spares(r) for w in writes for r in reads if r is not None)


def _counted(plan: LoopPlan, k: int) -> bool:
    """Whether a loop inside of the kernel stores rows of the result, before others are read."""
    roots = [r for c in plan.components for s in c.sweeps for r in s.roots]
    return any(r.loops and (r.dest.kind, r.dest.index) == ("stack", k) for r in roots)


def _reads(plan: LoopPlan) -> dict[int, list[_Window | None]]:
    """What is read of each scanned operand; None for a product or a sum that reads whole rows."""
    found: dict[int, list[_Window | None]] = {j: [] for j in range(len(plan.loop.x_types))}
    for p in plan.projections:
        found[p.scan].append(None)  # of all steps, at any time
    for c in plan.components:
        for s in c.sweeps:
            for r in s.roots:
                # An element may be read by itself and in a product besides.
                whole = {a for x in walk(r.atom) if x.op in WHOLE for b in below(x) for a in walk(b)}
                for a in walk(r.atom):
                    if a.source is not None and a.source.kind == "scan":
                        alone = a not in whole and a.cols and not a.loops
                        found[a.source.index].append(_Window.of(s, a.access) if alone else None)
    return found


def _writes(plan: LoopPlan, k: int) -> Iterator[_Window]:
    for c in plan.components:
        for s in c.sweeps:
            for r in s.roots:
                if (r.dest.kind, r.dest.index) == ("stack", k):
                    yield _Window.of(s, r.access)

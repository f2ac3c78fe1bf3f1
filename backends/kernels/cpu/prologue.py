"""Products of all steps' rows that the kernel of a loop makes before its first step.

A loop over one row reads rows that were multiplied before it. As a dispatch of its own the product
is followed by a barrier, at which a worker falls asleep and is woken again: 0.08 ms of a call of 0.5
(docs/performance.md). In the loop's dispatch the members of the team, which wait for each other awake,
share its blocks of columns as those of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lstm_ir.backends.kernels.body.atoms import MemorySource
from lstm_ir.backends.kernels.body.plan import Component, LoopPlan, Sweep, walk
from lstm_ir.backends.kernels.call.packing import Packed
from lstm_ir.backends.kernels.cpu.machine import MADE_SHARE, TENSORS
from lstm_ir.backends.kernels.cpu.sums import Tile
from lstm_ir.backends.kernels.cpu.team import Work
from lstm_ir.backends.kernels.cpu.tile import work_of
from lstm_ir.backends.kernels.text.memory import Memory
from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Node
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.target import TargetInfo


@dataclass
class Prologue:
    """One product: a loop of one step without carries."""

    owner: Component  # of the loop: its team makes the product
    plan: LoopPlan
    tiles: Mapping[Sweep, Tile]
    memories: dict[MemorySource, Memory]
    packed: dict[tuple[Sweep, int], Packed]
    read: Memory  # the result as the loop reads it
    rows: int | TextOperand  # of all steps

    @property
    def sweeps(self) -> list[Sweep]:
        """What it writes, in order."""
        return [s for c in self.plan.components for s in c.sweeps]

    def work(self, lanes: int) -> list[Work]:
        """What the team shares out, sweep by sweep."""
        return [work_of(s, self.tiles[s], lanes) for s in self.sweeps]


def owner_of(plan: LoopPlan, projection: int) -> Component | None:
    """The one component that reads a projection."""
    wanted = MemorySource("projection", projection)
    found = [
        c for c in plan.components if any(a.source == wanted for s in c.sweeps for r in s.roots for a in walk(r.atom))
    ]
    return found[0] if len(found) == 1 else None


def fits(plan: LoopPlan, few: bool, product: Node, target: TargetInfo) -> bool:
    """Whether the kernel of `plan` makes this product: one team has all rows, and L2 holds those of x, where their
    number is known; `few` says that the kernel is called with few rows."""
    (rows,) = Loop(product).xs
    if (plan.rows != 1 and not few) or _tensors(plan) > TENSORS:
        return False
    size = dims.product(rows.shape)
    if not isinstance(size, int):
        return True
    return 0 < size * rows.dtype.bits // 8 <= target.l2_bytes // MADE_SHARE


def _tensors(plan: LoopPlan) -> int:
    """At most so many tensors, with all products made here."""
    sweeps = [s for c in plan.components for s in c.sweeps]
    weights = sum(len(s.loops) for s in sweeps)
    rows = len(plan.scanned) + len(plan.stacked) + len(plan.temps)
    values = {a.source for s in sweeps for r in s.roots for a in walk(r.atom) if a.op == "load"}
    return rows + len(values) + weights + 3 * (len(plan.projections) + len(plan.carries))

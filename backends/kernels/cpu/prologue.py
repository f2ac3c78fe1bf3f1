"""Products of scanned rows that the kernel of a loop makes itself, for a block of steps at a time.

A loop over one row reads rows that were multiplied before it. As a dispatch of its own the product is followed by a
barrier, at which a worker falls asleep and is woken again: 0.08 ms of a call of 0.5 (docs/performance.md). In the
loop's dispatch the members of the team, which wait for each other awake, share its blocks of columns as those of a
step. Of a block's steps the rows and what they are multiplied to stay in L2, and memory does not grow with the steps.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from lstm_ir.backends.kernels.body.access import RefusedError
from lstm_ir.backends.kernels.body.atoms import MemorySource
from lstm_ir.backends.kernels.body.plan import Component, LoopPlan, Sweep, walk
from lstm_ir.backends.kernels.body.planner import make_plan
from lstm_ir.backends.kernels.call.packing import Packed
from lstm_ir.backends.kernels.cpu.machine import FOLD_ROWS, MADE_SHARE, MADE_STEPS, TENSORS, machine
from lstm_ir.backends.kernels.cpu.schedule import LoopSchedule, choose, product_forms
from lstm_ir.backends.kernels.cpu.scratch import ScratchRows
from lstm_ir.backends.kernels.cpu.step_size import bytes_of_step
from lstm_ir.backends.kernels.cpu.team import RowRange, Work
from lstm_ir.backends.kernels.cpu.tile import work_of
from lstm_ir.backends.kernels.text.evaluate import Evaluator
from lstm_ir.backends.kernels.text.memory import ElementPlace, Memory
from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.steps import TimeStep
from lstm_ir.backends.kernels.text.text import Text
from lstm_ir.ir.graph import Graph, Node
from lstm_ir.ir.target import TargetInfo

WRITTEN = MemorySource("stack", 0)  # the one result of a product


class InnerProduct(NamedTuple):
    """A projection that the kernel of its loop makes: a loop of one step without carries."""

    owner: Component  # of the outer loop: its team makes the product
    graph: Graph
    node: Node
    plan: LoopPlan
    schedule: LoopSchedule
    steps: int  # of a block


@dataclass
class Prologue:
    """One product of a block's rows, as the kernel writes it."""

    source: MemorySource  # the projection of the loop
    product: InnerProduct
    memories: dict[MemorySource, Memory]
    packed: dict[tuple[Sweep, int], Packed]
    made: ScratchRows  # of a block
    rows: int | TextOperand  # of a step

    @property
    def sweeps(self) -> list[Sweep]:
        """What it writes, in order."""
        return [s for c in self.product.plan.components for s in c.sweeps]

    def work(self, lanes: int) -> list[Work]:
        """What the team shares out, sweep by sweep."""
        return [work_of(s, self.product.schedule.tiles[s], lanes) for s in self.sweeps]

    def evaluator(self, t: Text, rows: RowRange) -> Evaluator:
        """Of a product that writes these rows alone, and from the start of its memory on."""
        m, zero = self.memories[WRITTEN], t.index(0)
        memories = {**self.memories, WRITTEN: _BlockRows(m.name, m.element, m.sizes, rows.low)}
        return TimeStep(zero, zero, zero, t.index(1)).evaluator(t, self.product.plan, memories)

    def rows_of(self, t: Text, steps: RowRange) -> RowRange:
        """The rows of these steps of x, counted from its first one."""
        each = t.index(self.rows) if isinstance(self.rows, int) else self.rows
        return RowRange(t.binary("muli", steps.low, each), t.binary("muli", steps.high, each))


@dataclass(frozen=True)
class _BlockRows(Memory):
    """Rows from `first` on alone."""

    first: TextOperand

    def row(self, t: Text, place: ElementPlace) -> TextOperand | None:
        assert place.row is not None
        return t.binary("subi", place.row, self.first)


def made_inside(
    plan: LoopPlan, schedule: LoopSchedule, target: TargetInfo, helpers: bool, counted: bool
) -> dict[int, InnerProduct]:
    """The projections that the kernel of `plan` makes, by number: one team has all rows, and the dispatch takes the
    tensors. counted: a call says how many steps run."""
    alone = schedule.apart or schedule.row_lanes  # members do not wait for each other
    if alone or (plan.rows != 1 and not schedule.few) or _tensors(plan) > TENSORS:
        return {}
    steps, found = _steps(plan, target), {}
    uneven = counted or plan.loop.length != steps
    for k, projection in enumerate(plan.projections):
        graph, owner = projection.graph(plan.loop.x_types[projection.scan]), _owner(plan, k)
        node = next((n for n in graph.nodes if n.op.name == "scan"), None)
        if node is None or owner is None:
            continue
        with suppress(RefusedError):
            inner = make_plan(node, False, product_forms(target))
            tiles = choose(inner, target, helpers, uneven=uneven)
            if tiles.lanes == schedule.lanes:
                found[k] = InnerProduct(owner, graph, node, inner, tiles, steps)
    return found


def _owner(plan: LoopPlan, projection: int) -> Component | None:
    """The one component that reads a projection."""
    wanted = MemorySource("projection", projection)
    found = [
        c for c in plan.components if any(a.source == wanted for s in c.sweeps for r in s.roots for a in walk(r.atom))
    ]
    return found[0] if len(found) == 1 else None


def _steps(plan: LoopPlan, target: TargetInfo) -> int:
    """Steps of a block: a part of L2 holds their rows and what those are multiplied to, but where the weights of a step
    outgrow L2 they are enough to be worth reading the product's weights; all blocks have about as many, as whole tiles,
    and one block has all steps where they fit."""
    each = 0
    for p in plan.projections:
        t = p.graph(plan.loop.x_types[p.scan]).outputs[0].type
        each += (p.length + int(t.shape[-1])) * t.dtype.bytes
    rows = plan.rows if isinstance(plan.rows, int) else FOLD_ROWS - 1
    tile, length = machine(target).heights[0], plan.loop.length
    least = MADE_STEPS if bytes_of_step(plan) > target.l2_bytes else tile
    most = max(least, target.l2_bytes // MADE_SHARE // max(1, rows * each) // tile * tile)
    if not isinstance(length, int):
        return most
    blocks = max(1, -(-length // most))
    even = -(-length // blocks)
    return even if blocks == 1 else -(-even // tile) * tile


def _tensors(plan: LoopPlan) -> int:
    """At most so many tensors, with all products made here."""
    sweeps = [s for c in plan.components for s in c.sweeps]
    weights = sum(len(s.loops) for s in sweeps)
    rows = len(plan.scanned) + len(plan.stacked) + len(plan.temps)
    values = {a.source for s in sweeps for r in s.roots for a in walk(r.atom) if a.op == "load"}
    return rows + len(values) + weights + 3 * (len(plan.projections) + len(plan.carries))

"""The kernel function: all steps of all components, for one group of workgroups each.

Workgroups are numbered (component, chunk of rows, member). Members of one chunk share its
blocks of columns; see `team` for how they do it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field

from lstm_ir.backends.kernels.body.active_rows import ActiveRows
from lstm_ir.backends.kernels.body.atoms import MemorySource
from lstm_ir.backends.kernels.body.plan import Component, KLoop, LoopPlan, Sweep, walk
from lstm_ir.backends.kernels.call.packing import Packed
from lstm_ir.backends.kernels.cpu.carries import VectorCarries
from lstm_ir.backends.kernels.cpu.chains import chains, shared
from lstm_ir.backends.kernels.cpu.columns import ColumnLoop
from lstm_ir.backends.kernels.cpu.ending import Run, until_ended
from lstm_ir.backends.kernels.cpu.prologue import Prologue
from lstm_ir.backends.kernels.cpu.row_lanes import LaneLoop
from lstm_ir.backends.kernels.cpu.row_order import RowOrder
from lstm_ir.backends.kernels.cpu.sums import Sums, Tile
from lstm_ir.backends.kernels.cpu.team import RowRange, StepBlock, Team, Turn
from lstm_ir.backends.kernels.cpu.tile import Block, work_of
from lstm_ir.backends.kernels.text.evaluate import Evaluator
from lstm_ir.backends.kernels.text.kernel import Kernel, KernelFunction, KernelSignature, called_by_iree
from lstm_ir.backends.kernels.text.memory import ELEMENT_BYTES, Memory, on_stack
from lstm_ir.backends.kernels.text.outline import PREFIX, outlined
from lstm_ir.backends.kernels.text.statements import Name, TextOperand
from lstm_ir.backends.kernels.text.steps import TimeStep, backward, counted_steps
from lstm_ir.backends.kernels.text.text import Text, scalar_type
from lstm_ir.backends.memory import LINE
from lstm_ir.ir.dims import Dim


@dataclass
class KernelMemories:
    """Everything the function binds: memories by source, weights per pass, and index arguments."""

    memories: dict[MemorySource, Memory]
    packed: dict[tuple[Sweep, int], Packed]
    finals: list[Memory | None]  # None: nothing reads it
    init: list[Memory | float]  # numbers: all elements
    counters: Memory | None
    count: Memory | None  # the run-time number of steps
    length: TextOperand
    rows: TextOperand
    chunks: TextOperand
    members: TextOperand
    tiles: Mapping[Sweep, Tile]
    relax: str  # the processor's hint for waiting threads
    signature: KernelSignature
    bindings: list[tuple[Name, Memory]] = field(default_factory=list)
    shared: tuple[Name, list[list[Memory]]] | None = None  # a binding of bytes, and what is in it
    stays: bool = False  # what is in it stays till the next call
    prologues: list[Prologue] = field(default_factory=list)
    word_product: str = ""  # how products of int8 are made
    apart: bool = False  # columns outermost
    row_lanes: bool = False  # lanes are rows
    row_unit: int = 1  # chunks have a multiple of so many rows
    from_zero: frozenset[KLoop] = frozenset()  # passes that add nothing in the first step
    sizes: Mapping[Dim, Name] = field(default_factory=dict)  # named ones that loops count to
    active: Mapping[Component, ActiveRows] = field(default_factory=dict)  # whose steps put rows in order


class CpuLoopKernel:
    """Writes the body of one kernel."""

    def __init__(self, plan: LoopPlan, layout: KernelMemories, lanes: int) -> None:
        self.plan, self.l = plan, layout
        self.t = Text(lanes, sizes=layout.sizes)

    def kernel(self) -> Kernel:
        """Its functions: the entry begins with its memories."""
        t, args = self.t, self.l
        zero = t.index(0)
        for binding, m in args.bindings:
            t.put(m.subspan(binding, zero))
        if args.shared is not None:
            self._pieces(*args.shared)
        for name, cut in self.plan.cuts.items():
            turns = t.binary("maxsi", t.extent(cut.turns), zero)
            t.cuts[name] = t.binary("minsi", turns, t.extent(cut.size))
        parts = self._everything()
        return Kernel((*parts, t.function("", args.signature, called_by_iree())))

    def _pieces(self, binding: Name, pieces: list[list[Memory]]) -> None:
        """Memories side by side in one binding, each from a multiple of LINE bytes on.

        Each in one form or more.
        """
        t = self.t
        at: TextOperand = t.index(0)
        for m, *others in pieces:
            for form in (m, *others):
                t.put(form.subspan(binding, at))
            size: TextOperand = t.index(ELEMENT_BYTES[m.element])
            for d in m.sizes:
                size = t.binary("muli", size, t.index(d) if isinstance(d, int) else d)
            whole = t.binary("ceildivui", size, t.index(LINE))
            at = t.binary("addi", at, t.binary("muli", whole, t.index(LINE)))

    def _everything(self) -> list[KernelFunction]:
        """The entry's statements; gives the functions that it calls."""
        t, args = self.t, self.l
        group = t.workgroup()
        member = t.binary("remui", group, args.members)
        group = t.binary("divui", group, args.members)
        chunk = t.binary("remui", group, args.chunks)
        which = t.binary("divui", group, args.chunks)
        per = t.binary("ceildivui", args.rows, args.chunks)
        if args.row_unit > 1:
            unit = t.index(args.row_unit)
            per = t.binary("muli", t.binary("ceildivui", per, unit), unit)
        low = t.binary("minui", t.binary("muli", chunk, per), args.rows)
        high = t.binary("minui", t.binary("addi", low, per), args.rows)
        self.steps = counted_steps(t, args.count, args.length)
        team = group, member
        if len(self.plan.components) == 1:
            self._component(self.plan.components[0], low, high, *team)
            return []
        parts = []
        for c in self.plan.components:
            self.t = Text(t.lanes, PREFIX, t.sizes)
            self.t.cuts = t.cuts
            self._component(c, low, high, *team)
            parts.append(self.t)
        self.t = t
        functions, calls = outlined(parts, "_component")
        for i, call in enumerate(calls):
            with t.when(t.compare("eq", which, t.index(i))):
                t.call(call)
        return functions

    def _component(
        self, c: Component, low: TextOperand, high: TextOperand, group: TextOperand, member: TextOperand
    ) -> None:
        t, args = self.t, self.l
        if args.apart:
            self._columns(c, RowRange(low, high), member)
            return
        if args.row_lanes:
            lanes = LaneLoop(t, self.plan, c, args.memories, args.packed, args.init, args.finals, RowRange(low, high))
            lanes.write(self.steps, args.length if args.count is not None else None, self._turned(c))
            return
        team = Team(t, args.counters, group, member, args.members, args.relax)
        found = chains(self.plan, c, args.tiles)
        work = [work_of(s, args.tiles[s], t.lanes) for s, *_ in shared(found)]
        mine = [p for p in args.prologues if p.product.owner is c]
        size = mine[0].product.steps if mine else 1  # steps of a block; without products there are no blocks
        team.begin(work, [w for p in mine for w in p.work(t.lanes)], size)
        carries = VectorCarries(t, self.plan, args.memories, c, low, high)
        with team.once():
            carries.begin(args.init)
        last = t.binary("subi", self.steps, t.index(1))
        ending, kinds = self.plan.ending, ["i1", "index"]
        state: Run = t.constant("true", "i1"), self.steps
        every = team.steps(self.steps)

        def write(step: TimeStep, made: Mapping[MemorySource, TextOperand]) -> None:
            e = step.evaluator(t, self.plan, args.memories, self._rows(c, step, member, made))
            turns = self._turns(c, step)
            order = self._order(c, e, RowRange(low, high))
            number = 0
            for chain in found:
                blocks = [self._block(e, s, args.tiles[s], args.packed, turns, order.get(s)) for s in chain]
                if chain[0].own:
                    count = work_of(chain[0], args.tiles[chain[0]], t.lanes).blocks
                    with t.loop(t.index(0), t.index(count), t.index(1)) as at:
                        self._write(blocks, Turn(at, at, RowRange(low, high)))
                    continue
                with team.blocks(number, step.at, step.parity, RowRange(low, high)) as turn:
                    self._write(blocks, turn)
                number += 1

        def run(block: StepBlock, made_to: TextOperand, state: Run) -> Run:
            """The steps of a block, and before them their products."""
            spans = {p.source: self._span(c, p.source, block.first, made_to) for p in mine}
            with t.when(state[0]) if ending is not None and mine else nullcontext():
                self._before(team, mine, block, spans)
            made = {m: first for m, (first, _) in spans.items()}
            if ending is None:
                with t.loop(block.first, block.end, t.index(1)) as s:
                    write(TimeStep.make(t, s, last), made)
                return state
            flags = args.memories[MemorySource("carry", ending.carry)]
            return until_ended(t, block, state, last, flags, high, lambda step: write(step, made))

        zero = t.index(0)
        if not mine or size == self.plan.loop.length:
            _, ran = run(StepBlock(zero, every), self.steps, state)
        else:
            first, inside, out = t.carried(zero, every, t.index(size), state, kinds)
            end = t.binary("minui", t.add(first, size), every)
            t.close(run(StepBlock(first, end), end, (inside[0], inside[1])), kinds)
            ran = out[1]
        with team.last(ran):
            carries.end(args.finals, ran)
            if args.count is not None or ending is not None:
                carries.zero_rest(ran, args.length)
        if args.stays:
            team.leave()

    def _span(self, c: Component, m: MemorySource, first: TextOperand, end: TextOperand) -> RowRange:
        """The rows of `m` that steps first .. end read."""
        t, flag = self.t, self._turned(c).get(m)
        if flag is None and not backward(self.plan, m):
            return RowRange(first, end)
        low, high = (t.binary("subi", self.steps, n) for n in (end, first))
        if flag is None:
            return RowRange(low, high)
        return RowRange(t.select(flag, low, first), t.select(flag, high, end))

    def _write(self, blocks: list[Block], turn: Turn) -> None:
        """One block of each sweep of a chain."""
        once = RowRange(self.t.index(0), self.t.index(1))
        for block in blocks:
            block.write(turn._replace(rows=once) if block.sweep.common else turn)

    def _columns(self, c: Component, rows: RowRange, member: TextOperand) -> None:
        """A member's blocks of columns, through all steps."""
        t, args = self.t, self.l
        (sweep,) = c.sweeps
        tile = args.tiles[sweep]
        blocks = t.index(tile.blocks(sweep.width, t.lanes))
        low, high = (t.binary("divui", t.binary("muli", m, blocks), args.members) for m in (member, t.add(member, 1)))
        loop = ColumnLoop(t, self.plan, c, args.memories, args.init, args.finals, rows, (low, high), tile.q)
        loop.write(self.steps, args.length if args.count is not None else None, self._turned(c))

    def _rows(
        self, c: Component, step: TimeStep, member: TextOperand, made: Mapping[MemorySource, TextOperand]
    ) -> dict[MemorySource, TextOperand]:
        """The leading index of a member's own rows; row numbers by a constant that says which way, where components
        go both ways; and those among the rows that were `made` from one on."""
        mine = [r.dest.index for s in c.sweeps if s.own for r in s.roots]
        out: dict[MemorySource, TextOperand] = {
            MemorySource(kind, i): member for i in mine for kind in ("temp", "words")
        }
        out |= {m: self.t.select(flag, step.back, step.at) for m, flag in self._turned(c).items()}
        for m, first in made.items():
            row = out.get(m, step.back if backward(self.plan, m) else step.at)
            out[m] = self.t.binary("subi", row, first)
        return out

    def _turned(self, c: Component) -> dict[MemorySource, TextOperand]:
        """Constants that say which rows come from the last on, where components go both ways."""
        out: dict[MemorySource, TextOperand] = {}
        if len(self.plan.components) == 1 or len(set(self.plan.loop.reverse)) < 2:
            return out
        roots = [r for s in c.sweeps for r in s.roots]
        found = [m for r in roots for m in (*(a.source for a in walk(r.atom)), r.dest)]
        for m in dict.fromkeys(m for m in found if m is not None):
            turned = backward(self.plan, m)
            if turned is not None:
                out[m] = self.t.constant("true" if turned else "false", "i1")
        return out

    def _before(
        self, team: Team, prologues: list[Prologue], block: StepBlock, spans: Mapping[MemorySource, RowRange]
    ) -> None:
        """What the steps of a block read and this kernel makes."""
        t, number = self.t, 0
        for p in prologues:
            rows = p.rows_of(t, spans[p.source])
            e = p.evaluator(t, rows)
            for sweep in p.sweeps:
                with team.blocks_before(number, block, rows) as turn:
                    self._block(e, sweep, p.product.schedule.tiles[sweep], p.packed, {}).write(turn)
                number += 1

    def _order(self, c: Component, e: Evaluator, rows: RowRange) -> dict[Sweep, RowOrder]:
        """Of the sweeps that do not need all rows' products in this step."""
        active = self.l.active.get(c)
        if active is None:
            return {}
        return dict.fromkeys(active.sweeps, RowOrder.of_step(self.t, e, active.condition, rows, self.plan.rows))

    def _turns(self, c: Component, step: TimeStep) -> dict[KLoop, TextOperand]:
        """Turns of the passes that have none in the first step."""
        t = self.t
        found = [k for s in c.sweeps for k in s.loops if k in self.l.from_zero]
        if not found:
            return {}
        begins = t.compare("eq", step.at, t.index(0))
        return {k: t.select(begins, t.index(0), t.index(k.turns)) for k in found}

    def _block(
        self, e: Evaluator, sweep: Sweep, tile: Tile, packs: Mapping[tuple[Sweep, int], Packed],
        turns: Mapping[KLoop, TextOperand], order: RowOrder | None = None,
    ) -> Block:  # fmt: skip
        sums = None
        if sweep.dots:
            element = scalar_type(sweep.dots[0].dtype)
            packed = {k: packs[sweep, k] for k in range(len(sweep.loops))}
            sizes = tile.group, tile.q * len(sweep.dots), self.t.lanes
            buffer = on_stack(self.t, element, sizes)
            sums = Sums(self.t, e, sweep, tile, packed, buffer, self.l.word_product, turns, order)
        return Block(self.t, e, sweep, tile, sums, order)

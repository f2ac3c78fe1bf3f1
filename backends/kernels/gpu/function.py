"""A whole loop as one GPU kernel: a workgroup runs all steps of a tile of rows.

Carries and computed rows stay in the memory of the workgroup, a carry in two copies that change
places every step. Threads meet after every phase of a step; each owns some columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from lstm_ir.backends.kernels.body.access import Access, ColumnAxis, RowAxis
from lstm_ir.backends.kernels.body.atoms import MemorySource
from lstm_ir.backends.kernels.body.plan import Component, LoopPlan, Sweep
from lstm_ir.backends.kernels.call.call import short
from lstm_ir.backends.kernels.call.packing import Packed
from lstm_ir.backends.kernels.gpu.arena import Arena
from lstm_ir.backends.kernels.gpu.block import GpuBlock, TileRows
from lstm_ir.backends.kernels.gpu.memory import FlatMemory, local_memories, partials
from lstm_ir.backends.kernels.gpu.rounds import Rounds, count_rounds
from lstm_ir.backends.kernels.gpu.schedule import GpuSchedule
from lstm_ir.backends.kernels.text.carries import Carries, Element
from lstm_ir.backends.kernels.text.kernel import Kernel, KernelSignature, called_by_iree
from lstm_ir.backends.kernels.text.memory import ElementPlace, Memory
from lstm_ir.backends.kernels.text.statements import Name, TextOperand, argument
from lstm_ir.backends.kernels.text.steps import TimeStep, counted_steps
from lstm_ir.backends.kernels.text.text import ZERO, Text
from lstm_ir.ir.graph import Value

FIRST = argument("first")  # the first step of a dispatch that does not run all


@dataclass
class GpuLayout:
    """What the function binds."""

    memories: dict[MemorySource, Memory]
    packed: dict[tuple[Sweep, int], Packed]
    finals: list[Memory]
    init: list[Memory]
    count: Memory | None
    length: TextOperand
    rows: TextOperand
    numbers: list[Name]  # indices that arrive as i32
    signature: KernelSignature
    some: int | None = None  # steps of a dispatch, from FIRST on; None: all
    arenas: list[Arena] = field(default_factory=list)
    bindings: list[tuple[Name, Memory]] = field(default_factory=list)

    def open(self, t: Text) -> None:
        """Numbers, bindings, and where values begin in the tensors that hold several."""
        for n in self.numbers:
            t.op("arith.index_cast {} : i32 to index", short(n), to=n)
        for binding, m in self.bindings:
            assert isinstance(m, FlatMemory)
            m.open(t, binding, ZERO)
        for a in self.arenas:
            a.open(t)


class GpuLoopKernel:
    """Writes the kernel of a whole loop."""

    def __init__(self, plan: LoopPlan, layout: GpuLayout, schedule: GpuSchedule) -> None:
        self.plan, self.l, self.s = plan, layout, schedule
        self.t = Text(0)
        self.local = local_memories(plan, schedule.rows)
        self.partial = partials(plan, schedule.threads)
        self.memories: Mapping[MemorySource, Memory] = {**layout.memories, **self.local}
        self.ends: set[TextOperand] = set()  # of loops over steps

    def kernel(self) -> Kernel:
        """One function, its numbers and memories first."""
        self.l.open(self.t)
        for shared in (*self.local.values(), *self.partial.values()):
            shared.open(self.t)
        self._everything()
        return kernel(self.t, self.l.signature, self.s.threads)

    @property
    def rounds(self) -> Rounds:
        """Of what was written."""
        return count_rounds(self.t.body, self.ends)

    def _everything(self) -> None:
        t = self.t
        self.tid = t.op("gpu.thread_id x")
        group = t.workgroup()
        groups = t.op("stream.dispatch.workgroup.count[0] : index")
        self.steps = counted_steps(t, self.l.count, self.l.length)
        tiles = t.binary("ceildivui", self.l.rows, t.index(self.s.rows))
        if len(self.plan.components) == 1:
            self._tiles(self.plan.components[0], group, groups, tiles)
            return
        many = t.index(len(self.plan.components))
        which, mine = t.binary("remui", group, many), t.binary("divui", group, many)
        for i, c in enumerate(self.plan.components):
            with t.when(t.compare("eq", which, t.index(i))):
                self._tiles(c, mine, t.binary("divui", groups, many), tiles)

    def _tiles(self, c: Component, first: TextOperand, groups: TextOperand, tiles: TextOperand) -> None:
        """Tiles of rows first, first + groups, ...: a device bounds the number of workgroups."""
        t = self.t
        with t.loop(first, tiles, groups) as tile:
            low = t.binary("muli", tile, t.index(self.s.rows))
            here = t.binary("minui", t.binary("subi", self.l.rows, low), t.index(self.s.rows))
            last = t.binary("subi", self.l.rows, t.index(1))
            safe = [t.binary("minui", t.add(low, r), last) for r in range(self.s.rows)]
            self._tile(c, TileRows(low, here, self.s.rows, safe))

    def _tile(self, c: Component, rows: TileRows) -> None:
        t = self.t
        carries = _Threads(t, self.plan, self.memories, c, rows, self.tid, self.s.threads)
        carries.begin(self.l.init)
        t.line("gpu.barrier")
        last = t.binary("subi", self.steps, t.index(1))
        first, end, rest = self._range()
        with t.loop(first, end, t.index(1)) as s:
            e = TimeStep.make(t, s, last).evaluator(t, self.plan, self.memories)
            for n, sweep in enumerate(c.sweeps):
                packed = {k: self.l.packed[sweep, k] for k in range(len(sweep.loops))}
                GpuBlock(t, e, sweep, packed, self.tid, self.s.threads, self.partial).write(rows)
                # what a phase computes is read in later ones, and in the next step
                if n + 1 == len(c.sweeps) or c.sweeps[n + 1].phase != sweep.phase:
                    t.line("gpu.barrier")
        carries.end(self.l.finals, end)
        if self.l.count is not None:
            carries.zero_rest(*rest)
        t.line("gpu.barrier")

    def _range(self) -> tuple[TextOperand, TextOperand, tuple[TextOperand, TextOperand]]:
        """The first step and the end of those that run, and of the rows of steps that do not."""
        t, steps, length = self.t, self.steps, self.l.length
        first: TextOperand = t.index(0)
        if self.l.some is None:
            end, rest = steps, (steps, length)
        else:
            first, there = FIRST, t.add(FIRST, self.l.some)
            end = t.binary("maxui", first, t.binary("minui", steps, there))
            rest = (t.binary("maxui", first, steps), t.binary("minui", length, there))
        self.ends |= {end, rest[1]}
        return first, end, rest


@dataclass
class _Threads(Carries):
    """Each element of a tile's rows once, by one thread."""

    rows: TileRows
    tid: TextOperand
    threads: int

    @contextmanager
    def elements(self, v: Value, access: Access) -> Iterator[Element]:
        """Rows one after the other, columns by thread."""
        t = self.t
        width = int(v.shape[-1]) if any(isinstance(a, ColumnAxis) for a in access) else 1
        high = self.rows.count if any(isinstance(a, RowAxis) for a in access) else t.index(1)
        with t.loop(t.index(0), high, t.index(1)) as slot:
            row = t.binary("addi", self.rows.first, slot)
            with t.loop(self.tid, t.index(width), t.index(self.threads)) as col:
                yield Element(access, ElementPlace(row, col, None, slot), False)


def kernel(t: Text, taken: KernelSignature, threads: int) -> Kernel:
    """What `t` holds, for workgroups of so many threads."""
    return Kernel((t.function("", taken, called_by_iree(f" workgroup_size = [{threads}, 1, 1]")),))

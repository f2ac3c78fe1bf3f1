"""A whole loop as one GPU kernel: a workgroup runs all steps of a tile of rows.

Carries and computed rows stay in the memory of the workgroup, a carry in two copies that change
places every step. Threads meet after every phase of a step; each owns some columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from lstm_ir.backends.kernels.body.access import Access, Col, Row
from lstm_ir.backends.kernels.body.atoms import Source
from lstm_ir.backends.kernels.body.plan import Component, Plan, Sweep
from lstm_ir.backends.kernels.call.packing import Packed
from lstm_ir.backends.kernels.gpu.arena import Arena
from lstm_ir.backends.kernels.gpu.block import GpuBlock, Rows
from lstm_ir.backends.kernels.gpu.local import local_memories, partials
from lstm_ir.backends.kernels.gpu.memory import FlatMemory
from lstm_ir.backends.kernels.gpu.schedule import GpuSchedule
from lstm_ir.backends.kernels.text.memory import Memory, Place, indices, load_scalar, store_scalar
from lstm_ir.backends.kernels.text.steps import Step, number_of_steps
from lstm_ir.backends.kernels.text.text import ZERO, Text
from lstm_ir.ir.graph import Value


@dataclass
class GpuLayout:
    """What the function binds."""

    memories: dict[Source, Memory]
    packed: dict[tuple[Sweep, int], Packed]
    finals: list[Memory]
    init: list[Memory]
    count: Memory | None
    length: str
    rows: str
    numbers: list[str]  # indices that arrive as i32
    arenas: list[Arena] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    bindings: list[tuple[str, Memory]] = field(default_factory=list)

    def open(self, t: Text) -> None:
        """Numbers, bindings, and where values begin in the tensors that hold several."""
        for n in self.numbers:
            t.line(f"{n} = arith.index_cast {n}_i32 : i32 to index")
        for binding, m in self.bindings:
            assert isinstance(m, FlatMemory)
            m.open(t, binding, ZERO)
        for a in self.arenas:
            a.open(t)


class GpuFunction:
    """Writes the body of one kernel."""

    def __init__(self, plan: Plan, layout: GpuLayout, schedule: GpuSchedule) -> None:
        self.plan, self.l, self.s = plan, layout, schedule
        self.t = Text(0)
        self.local = local_memories(plan, schedule.rows)
        self.partial = partials(plan, schedule.threads)
        self.memories: Mapping[Source, Memory] = {**layout.memories, **self.local}

    def text(self, name: str) -> str:
        """func.func with its constants and memories first."""
        self.l.open(self.t)
        for shared in (*self.local.values(), *self.partial.values()):
            shared.open(self.t)
        self._everything()
        return function(self.t, name, self.l.arguments, self.s.threads)

    def _everything(self) -> None:
        t = self.t
        self.tid = t.op("gpu.thread_id x")
        group = t.op("stream.dispatch.workgroup.id[0] : index")
        groups = t.op("stream.dispatch.workgroup.count[0] : index")
        self.steps = number_of_steps(t, self.l.count, self.l.length)
        tiles = t.op(f"arith.ceildivui {self.l.rows}, {t.index(self.s.rows)} : index")
        if len(self.plan.components) == 1:
            self._tiles(self.plan.components[0], group, groups, tiles)
            return
        many = t.index(len(self.plan.components))
        which, mine = t.binary("remui", group, many), t.binary("divui", group, many)
        for i, c in enumerate(self.plan.components):
            with t.block("scf.if " + t.op(f"arith.cmpi eq, {which}, {t.index(i)} : index")):
                self._tiles(c, mine, t.binary("divui", groups, many), tiles)

    def _tiles(self, c: Component, first: str, groups: str, tiles: str) -> None:
        """Tiles of rows first, first + groups, ...: a device bounds the number of workgroups."""
        t = self.t
        with t.loop(first, tiles, groups) as tile:
            low = t.binary("muli", tile, t.index(self.s.rows))
            here = t.binary("minui", t.binary("subi", self.l.rows, low), t.index(self.s.rows))
            last = t.binary("subi", self.l.rows, t.index(1))
            safe = [t.binary("minui", t.add(low, r), last) for r in range(self.s.rows)]
            self._tile(c, Rows(low, here, self.s.rows, safe))

    def _tile(self, c: Component, rows: Rows) -> None:
        t = self.t
        for i, static in c.carries:
            to = (self.local[Source("carry", i)], [t.index(0)])
            self._copy(self.plan.carries[i], static, (self.l.init[i], []), to, rows)
        t.line("gpu.barrier")
        last = t.binary("subi", self.steps, t.index(1))
        with t.loop(t.index(0), self.steps, t.index(1)) as s:
            e = Step.make(t, s, last).evaluator(t, self.plan, self.memories)
            for n, sweep in enumerate(c.sweeps):
                packed = {k: self.l.packed[sweep, k] for k in range(len(sweep.loops))}
                GpuBlock(t, e, sweep, packed, self.tid, self.s.threads, self.partial).write(rows)
                # what a phase computes is read in later ones, and in the next step
                if n + 1 == len(c.sweeps) or c.sweeps[n + 1].phase != sweep.phase:
                    t.line("gpu.barrier")
        parity = t.op(f"arith.remui {self.steps}, {t.index(2)} : index")
        for i, static in c.carries:
            source = (self.local[Source("carry", i)], [parity])
            self._copy(self.plan.carries[i], static, source, (self.l.finals[i], []), rows)
        self._zero_rest(c, rows)
        t.line("gpu.barrier")

    def _copy(
        self, v: Value, static: tuple[int, ...], source: tuple[Memory, list[str]],
        to: tuple[Memory, list[str]], rows: Rows,
    ) -> None:  # fmt: skip
        t, access = self.t, self.plan.access(v, static)
        with self._elements(v, access, rows) as place:
            (a, before), (b, prefix) = source, to
            x = load_scalar(t, a, [*before, *indices(t, access, place, a)])
            store_scalar(t, x, b, [*prefix, *indices(t, access, place, b)])

    def _zero_rest(self, c: Component, rows: Rows) -> None:
        """Stacked rows of steps that were not run."""
        if self.l.count is None:
            return
        t = self.t
        roots = [r for s in c.sweeps for r in s.roots if r.dest.kind == "stack"]
        for k, static in sorted({(r.dest.index, r.static) for r in roots}):
            v, m = self.plan.stacked[k], self.memories[Source("stack", k)]
            access = self.plan.access(v, static)
            zero = t.constant("0" if m.element[0] == "i" else "0.0", m.element)
            with t.loop(self.steps, self.l.length, t.index(1)) as s:
                with self._elements(v, access, rows) as place:
                    store_scalar(t, zero, m, [s, *indices(t, access, place, m)])

    @contextmanager
    def _elements(self, v: Value, access: Access, rows: Rows) -> Iterator[Place]:
        """Each element of these rows once, by one thread."""
        t = self.t
        width = int(v.shape[-1]) if any(isinstance(a, Col) for a in access) else 1
        high = rows.here if any(isinstance(a, Row) for a in access) else t.index(1)
        with t.loop(t.index(0), high, t.index(1)) as slot:
            row = t.binary("addi", rows.first, slot)
            with t.loop(self.tid, t.index(width), t.index(self.s.threads)) as col:
                yield Place(row, col, None, slot)


def function(t: Text, name: str, arguments: list[str], threads: int) -> str:
    """func.func of what `t` holds; the attribute keeps the compiler's hands off its loops."""
    pipeline = "pipeline = #iree_codegen.no_pipeline"
    info = f"#iree_codegen.translation_info<{pipeline} workgroup_size = [{threads}, 1, 1]>"
    return "\n".join([
        f"    func.func @{name}({', '.join(arguments)})",
        f"        attributes {{translation_info = {info}}} {{",
        *t.head, *t.lines, "      return", "    }",
    ])  # fmt: skip

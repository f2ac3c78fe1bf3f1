"""A scan's kernel on a CPU: operands, weights, scratch memory, workgroups."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from iree.compiler import ir

from lstm_ir.backends.emit.mlir_types import tensor
from lstm_ir.backends.kernels.body.atoms import MemorySource, Temp
from lstm_ir.backends.kernels.body.in_place import overwritten
from lstm_ir.backends.kernels.body.plan import WORD, KLoop
from lstm_ir.backends.kernels.body.shifted import shifted
from lstm_ir.backends.kernels.call.call import LoopCall, Make, Values, ready
from lstm_ir.backends.kernels.call.joined_rows import JoinedRows, joined_rows, result_types
from lstm_ir.backends.kernels.call.packing import PackedForm
from lstm_ir.backends.kernels.cpu.from_zero import from_zero
from lstm_ir.backends.kernels.cpu.function import CpuLoopKernel, KernelMemories
from lstm_ir.backends.kernels.cpu.machine import FOLD_ROWS
from lstm_ir.backends.kernels.cpu.packing_kernel import pack_given
from lstm_ir.backends.kernels.cpu.prologue import WRITTEN, InnerProduct, Prologue, made_inside
from lstm_ir.backends.kernels.cpu.schedule import LoopSchedule
from lstm_ir.backends.kernels.cpu.scratch import GROUPS, Flags, Scratch, ScratchRows, scratch
from lstm_ir.backends.kernels.cpu.team import relax_instruction
from lstm_ir.backends.kernels.cpu.words import word_product_of
from lstm_ir.backends.kernels.cpu.workers import flags_needed, grid, most_members, most_teams
from lstm_ir.backends.kernels.text.memory import Memory, Shifted, TensorPart
from lstm_ir.backends.kernels.text.statements import argument
from lstm_ir.backends.kernels.text.text import stored_dtype, stored_type
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.literals import splat
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.types import DType, TensorType

# Numbers of the kernel: chunks of rows, members of a team.
CHUNKS, MEMBERS = argument("chunks"), argument("members")


@dataclass
class Dispatch(LoopCall):
    """Builds one kernel call."""

    schedule: LoopSchedule = field(kw_only=True)
    prologues: list[Prologue] = field(default_factory=list, kw_only=True)
    inside: Mapping[int, InnerProduct] = field(default_factory=dict, kw_only=True)  # projections that it makes itself
    parts: list[JoinedRows] = field(default_factory=list, init=False)  # stacked rows that are written into one tensor

    def run(self, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Values:
        """The dispatch: final carries, then stacked rows."""
        return self.unpacked(self.planned(consts, init, xs, count)())

    def planned(self, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Callable[[], Values]:
        """What puts the dispatch into the module, which gives results as kernels keep them; RefusedError where there
        is none."""
        plan, n = self.plan, self.plan.node
        lanes = self.schedule.lanes
        assert self.e.target is not None
        self.inside = made_inside(plan, self.schedule, self.e.target, self.e.options.helpers, count is not None)
        memories, packed = self.bind_inputs([*map(ready, consts)], [*map(ready, xs)], self.schedule.forms)
        starts = self._starts(init)
        steps = None if count is None else self.input(ready(count), n.args[3].type)  # type: ignore[union-attr]
        finals = [self.output(p.type) if self._read(i) else None for i, p in enumerate(plan.carries)]
        self._bind_stacked(memories)
        shares = self.deferred(lambda: grid(self.e, self.const, plan, self.schedule))
        groups = self.deferred(lambda: self.muli(shares()[0], self.const(len(plan.components))))
        made = self._scratch(memories, groups)
        counted = {d: self.size(d) for d in plan.counted_sizes}
        layout = KernelMemories(
            memories, packed, finals, starts, made.counters, steps,
            self.size(plan.loop.length), self.size(plan.rows),
            CHUNKS, MEMBERS, self.schedule.tiles, relax_instruction(self.e.target),
            self.signature([CHUNKS, MEMBERS, GROUPS]),
        )  # fmt: skip
        layout.shared, layout.stays = made.pieces, made.kept is not None
        layout.prologues, layout.apart = self.prologues, self.schedule.apart
        layout.row_lanes, layout.row_unit = self.schedule.row_lanes, self.schedule.row_unit
        zero = [MemorySource("carry", i) for i, start in enumerate(starts) if start == 0]
        layout.active = self.schedule.active
        layout.from_zero, layout.sizes = from_zero(plan, zero), counted
        layout.word_product = word_product_of(self.e.target, lanes)
        layout.bindings = [*self.inputs, *self.outputs, *made.views]
        kernel = CpuLoopKernel(plan, layout, lanes).kernel()
        self.check(kernel.entry.signature)

        def put() -> Values:
            symbol, (chunks, members) = self.begin(kernel), shares()
            there = groups if made.kept is None or made.kept.teams is None else made.kept.teams
            total, extra = self.muli(groups(), members), [chunks, members, there()]
            out = made.run(self, lambda written: self.call(symbol, total, extra, written))
            for i, m in enumerate(finals):
                if m is None:
                    t = plan.carries[i].type
                    out.insert(i, self.e.full(0, t.with_dtype(stored_dtype(t.dtype))))
            return out[: len(result_types(n, self.parts))]  # scratch memory stands behind the loop's results

        return put

    def unpacked(self, out: Values) -> Values:
        """The loop's results; what joins some of them is made."""
        e, n, first = self.e, self.plan.node, len(self.plan.carries)
        part, rest, found = {first + k: j for j in self.parts for k in j.starts}, iter(out), list[ir.Value]()
        wholes: dict[Node, ir.Value] = {}
        for i, t in enumerate(n.types):
            j = part.get(i)
            if j is None:
                found.append(next(rest))
                continue
            if j.node not in wholes:  # it stands in the place of its first part
                wholes[j.node] = next(rest)
            t = t.with_dtype(stored_dtype(t.dtype))
            at = [j.starts[i - first] if a == j.axis + t.rank else 0 for a in range(t.rank)]
            found.append(e.extract_slice(wholes[j.node], t, at, t.shape, tensor(t)))
        e.known |= {u.values[0]: self.as_typed(v, u.types[0]) for u, v in wholes.items()}
        return super().unpacked(found)

    def _read(self, i: int) -> bool:
        """Whether anything reads the last value of a carry."""
        within, ending = self.e.within, self.plan.ending
        if ending is not None and i == ending.carry:
            return True
        v = (self.plan.node if ending is None else ending.of).values[i]
        return within is None or v in within.users or v in within.outputs

    def packed(self, loops: list[KLoop], known: Mapping[Value, ir.Value], form: PackedForm) -> ir.Value:
        """By a kernel where calls bring the weights."""
        made = None if self.schedule.row_lanes else pack_given(self.e, loops, known, form)
        return super().packed(loops, known, form) if made is None else made

    # -- memory

    def _bind_stacked(self, memories: dict[MemorySource, Memory]) -> None:
        """Memory of the stacked rows: of a scanned operand, of a part of a tensor, of their own."""
        types, over = self.plan.node.types[len(self.plan.carries) :], self._over()
        self.parts = joined_rows(self.plan.node, self.e.within)
        part = {k: j for j in self.parts for k in j.starts}
        wholes: dict[Node, Memory] = {}
        for k, t in enumerate(types):
            j, old = part.get(k), memories.get(MemorySource("scan", over.get(k, -1)))
            if j is not None:
                if j.node not in wholes:
                    wholes[j.node] = self.output(j.type)
                m = wholes[j.node]
                memories[MemorySource("stack", k)] = TensorPart(m.name, m.element, m.sizes, j.axis, j.starts[k])
            else:
                memories[MemorySource("stack", k)] = self.output(t) if old is None else self.replaced(old, t)

    def _starts(self, init: Values) -> list[Memory | float]:
        """First carries; a number instead of a memory that would hold nothing else."""
        numbers = [splat(v) for v in self.plan.loop.init]
        return [
            self.input(ready(v), p.type) if number is None else number
            for v, number, p in zip(init, numbers, self.plan.carries, strict=True)
        ]

    def scanned(self, v: Value, make: Make) -> Memory:
        """What the loop reads row by row; rows of another tensor are read there, one off."""
        shift, known = shifted(v), self.e.known
        if shift is None or not v.dtype.is_float or not {shift.rows, shift.edge} <= known.keys():
            return self.input(make, v.type)
        edge = shift.number
        if edge is not None and not math.isfinite(edge):
            return self.input(make, v.type)
        first = self.input(ready(known[shift.edge]), shift.edge.type) if edge is None else edge
        m = self.input(ready(known[shift.rows]), shift.rows.type)
        length = self.size(self.plan.loop.length)
        return Shifted(m.name, m.element, m.sizes, first, shift.later, length)

    def projected(self, k: int, graph: Graph, x: Make, matrix: Make) -> Memory:
        """A product of few rows is made by this kernel: a dispatch of its own would be waited for."""
        product = self.inside.get(k)
        if product is None:
            return super().projected(k, graph, x, matrix)
        (source,) = Loop(product.node).xs
        of_x = Graph("rows", product.graph.params[:1], [source])
        rows = self.deferred(lambda: self.e.graph(of_x, [x()])[0])
        inner = Dispatch(
            self.e, product.plan, schedule=product.schedule, joined=self.joined, steps=self.steps,
            operands=self.operands, inputs=self.inputs, operand_types=self.operand_types, sizes=self.sizes,
        )  # fmt: skip
        memories, packed = inner.bind_inputs([matrix], [rows], product.schedule.forms)
        t = graph.outputs[0].type
        each, width = dims.product(t.shape[1:-1]), t.shape[-1]
        sizes = tuple(d if isinstance(d, int) else self.size(d) for d in (product.steps, *t.shape[1:]))
        read = Memory(f"%m_made{len(self.prologues)}", stored_type(t.dtype), sizes)
        written = product.plan.node.types[0].with_shape((1, dims.mul(product.steps, each), width))
        every = each if isinstance(each, int) else self.size(each)
        to = MemorySource("projection", k)
        self.prologues.append(Prologue(to, product, memories, packed, ScratchRows(written, read), every))
        return read

    def _scratch(self, memories: dict[MemorySource, Memory], groups: Make) -> Scratch:
        """Memory of carries, temporary rows and what is made before the steps; flags."""
        plan = self.plan
        if self.schedule.row_lanes:
            return Scratch([])  # it is on the stack
        kept = {MemorySource("carry", i): ScratchRows(self._twice(i, p.type)) for i, p in enumerate(plan.carries)}
        kept |= {MemorySource("temp", temp.index): self._rows(temp) for temp in plan.temps}
        memories |= {MemorySource("words", m.index): r.read for m, r in kept.items() if r.read is not None}
        before = [p.made for p in self.prologues]
        flags = None
        if self.schedule.share:
            work = [w for p in self.prologues for w in p.work(self.schedule.lanes)]
            each = flags_needed(plan, self.schedule, work)
            flags = Flags(each, groups, partial(most_teams, plan, self.schedule))
        most = FOLD_ROWS - 1 if self.schedule.few else None
        made = scratch(self, [*kept.values(), *before], flags, plan.rows, most)
        memories |= zip(kept, made.memories, strict=False)
        for p, m in zip(self.prologues, made.memories[len(kept) :], strict=True):
            p.memories[WRITTEN] = m
        return made

    def _over(self) -> dict[int, int]:
        """Stacked results that take the memory of scanned rows, which another loop made for this one."""
        loop, e = self.plan.loop, self.e
        n, xs = loop.node, loop.xs
        if not e.at_top or e.within is None:
            return {}
        others = [*loop.consts, *loop.init]
        free = {
            j
            for j, v in enumerate(xs)
            if v.op == "scan" and e.within.users[v] == (n,) and xs.count(v) == 1
            and v not in others and v not in e.within.outputs
        }  # fmt: skip
        return {k: j for k, j in overwritten(self.plan).items() if j in free}

    def _padded(self, width: int) -> int:
        return -(-width // self.schedule.lanes) * self.schedule.lanes

    def _rows(self, temp: Temp) -> ScratchRows:
        """A computed row's memory; each member has its own of what each computes."""
        whole = -(-self._padded(temp.width) // WORD) * WORD
        counts = [at.room for at in temp.loops]
        before, width = (counts, (whole,)) if temp.width else (counts[:-1], tuple(counts[-1:]))
        members = (most_members(self.plan, self.schedule),) if temp.index in self.plan.own_temps else ()
        rows = () if temp.common else (self.plan.rows,)
        t = TensorType((*members, *before, *rows, *width), temp.atom.dtype)
        if temp.atom.dtype is not DType.i8 or not temp.width:
            return ScratchRows(t)
        sizes = tuple(d if isinstance(d, int) else self.size(d) for d in t.shape[:-1])
        return ScratchRows(t, Memory(f"%m_words{temp.index}", "i32", (*sizes, whole // WORD)))

    def _twice(self, i: int, t: TensorType) -> TensorType:
        """Memory of a carry: two of it, its rows padded to whole vectors."""
        if not t.rank:
            return t.with_shape((2,))
        last = t.shape[-1]
        wide = isinstance(last, int) and (t.rank > 1 or last != self.plan.rows or i in self.plan.common_carries)
        shape = (*t.shape[:-1], self._padded(int(last)) if wide else last)  # type: ignore[arg-type]
        return t.with_shape((2, *shape))

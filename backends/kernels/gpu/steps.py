"""A loop on a GPU as one dispatch per phase of a step, over many workgroups.

Carries (two copies), computed rows and stacked results are one tensor that every dispatch updates in
place: a loop of IREE's that carries one tensor carries it safely (see lower/scan_packed.py). An iteration
is a submission, so it holds `DISPATCHES` steps; steps that are left run one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from iree.compiler import ir

from lstm_ir.backends.emit.for_loop import first_carried, for_one
from lstm_ir.backends.kernels.body.atoms import MemorySource
from lstm_ir.backends.kernels.body.plan import LoopPlan, Sweep
from lstm_ir.backends.kernels.call.call import Values, ready
from lstm_ir.backends.kernels.call.packing import PackedForm
from lstm_ir.backends.kernels.gpu.arena import Arena
from lstm_ir.backends.kernels.gpu.block import GpuBlock, TileRows
from lstm_ir.backends.kernels.gpu.dispatch import GpuDispatch
from lstm_ir.backends.kernels.gpu.function import GpuLayout, kernel
from lstm_ir.backends.kernels.gpu.machine import DISPATCHES, GROUPS, LANES
from lstm_ir.backends.kernels.gpu.memory import partials
from lstm_ir.backends.kernels.gpu.schedule import GpuSchedule
from lstm_ir.backends.kernels.text.evaluate import Evaluator
from lstm_ir.backends.kernels.text.kernel import Kernel
from lstm_ir.backends.kernels.text.memory import Memory
from lstm_ir.backends.kernels.text.statements import TextOperand, argument
from lstm_ir.backends.kernels.text.steps import TimeStep, counted_steps
from lstm_ir.backends.kernels.text.text import ZERO, Text
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.types import DType, TensorType

TIME = argument("step")


class StepKernel:
    """Writes the kernel of one phase: the work of step `TIME`, nothing from the last one on."""

    def __init__(self, plan: LoopPlan, layout: GpuLayout, schedule: GpuSchedule, sweeps: Sequence[Sweep]) -> None:
        self.plan, self.l, self.s, self.sweeps = plan, layout, schedule, sweeps
        self.t = Text(0)
        self.partial = partials(plan, schedule.threads) if any(not s.width for s in sweeps) else {}

    def kernel(self) -> Kernel:
        """One function, its numbers and memories first."""
        t = self.t
        self.l.open(t)
        for shared in self.partial.values():
            shared.open(t)
        self.tid = t.op("gpu.thread_id x")
        group = t.workgroup()
        groups = t.op("stream.dispatch.workgroup.count[0] : index")
        steps = counted_steps(t, self.l.count, self.l.length)
        there = t.compare("slt", TIME, steps)
        with t.when(there):
            tiles = t.binary("ceildivui", self.l.rows, t.index(self.s.rows))
            last = t.binary("subi", steps, t.index(1))
            e = TimeStep.make(t, TIME, last).evaluator(t, self.plan, self.l.memories)
            total = t.binary("muli", tiles, t.index(sum(map(self._blocks, self.sweeps))))
            with t.loop(group, total, groups) as at:
                self._work(e, at, tiles)
        return kernel(t, self.l.signature, self.s.threads)

    def _blocks(self, s: Sweep) -> int:
        return max(1, -(-s.width // self.s.threads))

    def _work(self, e: Evaluator, at: TextOperand, tiles: TextOperand) -> None:
        t, before = self.t, 0
        for s in self.sweeps:
            n = self._blocks(s)
            low = t.binary("muli", tiles, t.index(before))
            mine = t.binary("subi", at, low)
            size = t.binary("muli", tiles, t.index(n))
            # unsigned: what lies before the first workgroup of this sweep is a huge number
            with t.when(t.compare("ult", mine, size)):
                tile = t.binary("divui", mine, t.index(n))
                block: TextOperand = t.index(0)
                if n > 1:
                    block = t.binary("remui", mine, t.index(n))
                first = t.binary("muli", block, t.index(self.s.threads))
                column = t.binary("addi", first, self.tid)
                packed = {k: self.l.packed[s, k] for k in range(len(s.loops))}
                threads = self.s.threads
                GpuBlock(t, e, s, packed, self.tid, threads, self.partial, column).write(self._rows(tile))
            before += n

    def _rows(self, tile: TextOperand) -> TileRows:
        t, n = self.t, self.s.rows
        low = t.binary("muli", tile, t.index(n))
        here = t.binary("minui", t.binary("subi", self.l.rows, low), t.index(n))
        last = t.binary("subi", self.l.rows, t.index(1))
        return TileRows(low, here, n, [t.binary("minui", t.add(low, r), last) for r in range(n)])


class StepDispatch(GpuDispatch):
    """Builds the loop of dispatches."""

    def planned(self, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Callable[[], Values]:
        """What puts the loop of dispatches into the module; RefusedError where there is none."""
        plan, n, e = self.plan, self.plan.node, self.e
        forms = {s: PackedForm(s.width, LANES, 1) for c in plan.components for s in c.sweeps}
        memories, packed = self.bind_inputs([*map(ready, consts)], [*map(ready, xs)], forms)
        counted = None if count is None else self.input(ready(count), n.args[3].type)  # type: ignore[union-attr]
        carried = [p.type for p in plan.carries]
        stacked = list(n.types[len(carried) :])
        arena = self._arena(carried, stacked, memories)
        length, rows = self.size(plan.loop.length), self.size(plan.rows)
        numbers, taken = [*self.sizes.values(), TIME, ZERO], self.signature([TIME, ZERO])
        layout = GpuLayout(memories, packed, [], [], counted, length, rows, numbers, taken)
        layout.arenas, layout.bindings = [arena], list(self.inputs)
        self.check(taken)
        kernels = [StepKernel(plan, layout, self.schedule, p).kernel() for p in phases(plan)]

        def start() -> ir.Value:
            flat = e.filled(0, arena.flat.type, own=True)
            for i, (v, t) in enumerate(zip(init, carried, strict=True)):
                flat = arena.flat.write(flat, v, t, e.size(arena.flat.parts[i].begin))
            return flat

        def put() -> Values:
            symbols = [self.begin(k) for k in kernels]
            done = self._loop(arena, first_carried(e, arena.flat.type, start), symbols)
            finals = [self._final(arena, done, i, t, count) for i, t in enumerate(carried)]
            first = len(arena.types) - len(stacked)
            return [*finals, *(arena.flat.get(done, first + k) for k in range(len(stacked)))]

        return put

    def _arena(
        self, carried: list[TensorType], stacked: list[TensorType], memories: dict[MemorySource, Memory]
    ) -> Arena:
        """Two copies of each carry, the computed rows, the stacked results."""
        plan = self.plan
        types = [t.with_shape((2, *t.shape)) for t in carried]
        sources = [MemorySource("carry", i) for i in range(len(carried))]
        for temp in plan.temps:
            shape: tuple[Dim, ...] = (plan.rows, temp.width) if temp.width else (plan.rows,)
            types.append(TensorType(shape, temp.atom.dtype))
            sources.append(MemorySource("temp", temp.index))
        arena = Arena(self.e, [*types, *stacked])
        sources += [MemorySource("stack", k) for k in range(len(stacked))]
        memories |= dict(zip(sources, self.in_place(arena), strict=True))
        return arena

    def _loop(self, arena: Arena, flat: ir.Value, symbols: list[str]) -> ir.Value:
        e, kind = self.e, arena.flat.type
        length = self.plan.loop.length
        unroll = max(1, DISPATCHES // len(symbols))
        totals = [self._total(p) for p in phases(self.plan)]
        zero, steps = self._zero(), self.const(length)
        size = self.const(unroll)
        rest = e.arith("remui", steps, size)
        even = e.arith("subi", steps, rest)

        def step(at: ir.Value, state: ir.Value) -> ir.Value:
            for symbol, total in zip(symbols, totals, strict=True):
                state = self.update(arena, state, symbol, total, [at, zero])
            return state

        def many(at: ir.Value, state: ir.Value) -> ir.Value:
            for u in range(unroll):
                state = step(e.arith("addi", at, self.const(u)), state)
            return state

        if not isinstance(length, int) or length >= unroll:
            flat = for_one(e, (self.const(0), even, size), flat, kind, many)
        if not isinstance(length, int) or length % unroll:
            flat = for_one(e, (even, steps, self.const(1)), flat, kind, step)
        return flat

    def _total(self, sweeps: Sequence[Sweep]) -> ir.Value:
        """Workgroups of a phase, as many as devices take."""
        columns = sum(max(1, -(-s.width // self.schedule.threads)) for s in sweeps)
        rows, tall = self.const(self.plan.rows), self.const(self.schedule.rows)
        tiles = self.e.arith("ceildivui", rows, tall)
        total = self.muli(tiles, self.const(columns))
        total = self.e.arith("maxui", total, self.const(1))
        return self.e.arith("minui", total, self.const(GROUPS))

    def _final(self, arena: Arena, flat: ir.Value, i: int, t: TensorType, count: ir.Value | None) -> ir.Value:
        """The copy of a carry that the last step wrote."""
        e = self.e
        begin = e.size(arena.flat.parts[i].begin)
        size = self._elements(t)
        if count is None:  # where it begins is known before the loop has run
            steps = self.const(self.plan.loop.length)
            parity = e.arith("remui", steps, self.const(2))
            size = self.muli(size, parity)
        other = e.arith("addi", begin, size)
        written = arena.flat.read(flat, t, other)
        if count is None:
            return written
        flags = t.with_dtype(DType.i1)
        # one flag per element: the host waits for a single one
        odd = e.broadcast(self._odd(count), flags.with_shape(()), flags, ())
        return e.hlo("select", [odd, written, arena.flat.read(flat, t, begin)], t)

    def _elements(self, t: TensorType) -> ir.Value:
        total = self.const(1)
        for d in t.shape:
            total = self.muli(total, self.const(d))
        return total

    def _odd(self, count: ir.Value) -> ir.Value:
        """Whether an odd number of steps ran."""
        e, scalar = self.e, TensorType((), DType.i32)
        n = e.scalar(self.const(self.plan.loop.length), DType.i32)
        given = e.convert(count, self.plan.node.args[3].type, DType.i32)  # type: ignore[union-attr]
        n = e.hlo("clamp", [e.constant(0, DType.i32), given, n], scalar)
        bit = e.hlo("and", [n, e.constant(1, DType.i32)], scalar)
        word = ir.Attribute.parse("#stablehlo<comparison_direction NE>")
        zero = e.constant(0, DType.i32)
        return e.hlo("compare", [bit, zero], scalar.with_dtype(DType.i1), comparison_direction=word)


def phases(plan: LoopPlan) -> list[list[Sweep]]:
    """Sweeps that may run side by side, of all components, in the order of a step."""
    out: list[list[Sweep]] = []
    for c in plan.components:
        numbers = sorted({s.phase for s in c.sweeps})
        for s in c.sweeps:
            at = numbers.index(s.phase)
            while len(out) <= at:
                out.append([])
            out[at].append(s)
    return out

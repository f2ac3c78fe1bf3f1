"""A scan's kernel on a GPU: its operands, workgroups and dispatch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from iree.compiler import ir

from lstm_ir.backends.kernels.body.atoms import MemorySource
from lstm_ir.backends.kernels.call.call import LoopCall, Values, ready
from lstm_ir.backends.kernels.gpu.arena import Arena
from lstm_ir.backends.kernels.gpu.function import GpuLayout, GpuLoopKernel
from lstm_ir.backends.kernels.gpu.machine import GROUPS, LANES
from lstm_ir.backends.kernels.gpu.memory import FlatMemory
from lstm_ir.backends.kernels.gpu.schedule import GpuSchedule
from lstm_ir.backends.kernels.text.kernel import KernelSignature
from lstm_ir.backends.kernels.text.memory import Memory
from lstm_ir.backends.kernels.text.text import ZERO
from lstm_ir.ir.types import TensorType


@dataclass
class GpuDispatch(LoopCall):
    """Builds one kernel call."""

    schedule: GpuSchedule = field(kw_only=True)
    narrow: ClassVar[bool] = True
    memory: ClassVar[type[Memory]] = FlatMemory

    def run(self, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Values:
        """The dispatch: final carries, then stacked rows."""
        plan, n = self.plan, self.plan.node
        q = {s: 1 for c in plan.components for s in c.sweeps}
        memories, packed = self.bind_inputs([*map(ready, consts)], [*map(ready, xs)], LANES, q)
        counted = None if count is None else self.input(ready(count), n.args[3].type)  # type: ignore[union-attr]
        carried = [p.type for p in plan.carries]
        kinds = [*carried, *n.types[len(carried) :]]
        length, rows = self.size(plan.loop.length), self.size(plan.rows)
        held, made = self._arenas(carried, kinds)
        starts = self._starts(held, init)
        results = self._results(made, kinds)
        finals, stacked = results[: len(carried)], results[len(carried) :]
        memories |= {MemorySource("stack", k): m for k, m in enumerate(stacked)}
        numbers, taken = [*self.sizes.values(), ZERO], self.signature([ZERO])
        layout = GpuLayout(memories, packed, finals, starts, counted, length, rows, numbers, taken)
        layout.arenas = [a for a in (held, made) if a is not None]
        layout.bindings = [*self.inputs, *self.outputs]
        symbol = self.begin(GpuLoopKernel(plan, layout, self.schedule).kernel())
        out = self.call(symbol, self._groups(), [self._zero()])
        return self.unpacked(out) if made is None else [made.flat.get(out[0], i) for i in range(len(kinds))]

    def _arenas(self, carried: list[TensorType], kinds: list[TensorType]) -> tuple[Arena | None, Arena | None]:
        """One tensor for all results, and one for all first carries, where words are short."""
        named = {d for t in kinds for d in t.shape if not isinstance(d, int)}
        numbers = len({*self.sizes, *named}) + 3
        room = (self.schedule.words - numbers) // 2 - len(self.operands)
        made = Arena(self.e, kinds) if len(carried) + len(kinds) > room else None
        short = made is not None and len(carried) > 1 and len(carried) + 1 > room
        return Arena(self.e, carried) if short else None, made

    def _starts(self, arena: Arena | None, init: Values) -> list[Memory]:
        if arena is None:
            pairs = zip(init, self.plan.carries, strict=True)
            return [self.input(ready(v), p.type) for v, p in pairs]
        whole = self.input(lambda: arena.flat.start(init), arena.flat.type)
        assert isinstance(whole, FlatMemory)
        return list(arena.bind(whole, self.size))

    def _results(self, arena: Arena | None, kinds: list[TensorType]) -> list[Memory]:
        if arena is None:
            return [self.output(t) for t in kinds]
        whole = self.output(arena.flat.type)
        assert isinstance(whole, FlatMemory)
        return list(arena.bind(whole, self.size))

    def check(self, taken: KernelSignature) -> None:
        """RefusedError where a dispatch would take more words than every device does."""
        super().check(taken._replace(numbers=()))
        needed = 2 * taken.tensors + len(taken.numbers)
        self.check_words(taken.tensors, needed, self.schedule.words)

    def _groups(self) -> ir.Value:
        """One workgroup per tile of rows and component, as many as devices take."""
        index = ir.IndexType.get()
        rows, tall = self.const(self.plan.rows), self.const(self.schedule.rows)
        tiles = self.e.make("arith.ceildivui", [rows, tall], [index]).result
        components = len(self.plan.components)
        one = self.e.make("arith.maxui", [tiles, self.const(1)], [index]).result
        few = self.e.make("arith.minui", [one, self.const(GROUPS // components)], [index]).result
        return self.muli(few, self.const(components))

    def _zero(self) -> ir.Value:
        return self.e.hidden(self.const(0))

"""A scan's kernel on a GPU: its operands, workgroups and dispatch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, TypeAlias

from iree.compiler import ir

from lstm_ir.backends.emit.options import DispatchLimits
from lstm_ir.backends.kernels.body.atoms import MemorySource
from lstm_ir.backends.kernels.call.call import LoopCall, Values, Written, ready
from lstm_ir.backends.kernels.call.packing import PackedForm
from lstm_ir.backends.kernels.gpu.arena import Arena
from lstm_ir.backends.kernels.gpu.function import FIRST, GpuLayout, GpuLoopKernel
from lstm_ir.backends.kernels.gpu.machine import GROUPS, LANES
from lstm_ir.backends.kernels.gpu.memory import FlatMemory, MemoryPiece
from lstm_ir.backends.kernels.gpu.rounds import Rounds
from lstm_ir.backends.kernels.gpu.schedule import GpuSchedule
from lstm_ir.backends.kernels.text.kernel import BINDING, Kernel
from lstm_ir.backends.kernels.text.memory import Memory
from lstm_ir.backends.kernels.text.statements import Name
from lstm_ir.backends.kernels.text.text import ZERO
from lstm_ir.ir.types import TensorType

Memories: TypeAlias = "list[Memory]"


@dataclass
class GpuDispatch(LoopCall):
    """Builds one kernel call."""

    schedule: GpuSchedule = field(kw_only=True)
    some: int | None = field(default=None, kw_only=True)  # steps of a dispatch; None: all
    rounds: Rounds = field(default=Rounds(0, 0), init=False)  # of the kernel that was planned
    held: Arena | None = field(default=None, init=False)  # of all first carries
    made: Arena | None = field(default=None, init=False)  # of all results
    narrow: ClassVar[bool] = True
    memory: ClassVar[type[Memory]] = FlatMemory

    def run(self, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Values:
        """The dispatches: final carries, then stacked rows."""
        return self.planned(consts, init, xs, count)()

    def planned(self, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Callable[[], Values]:
        """What puts the dispatch into the module; RefusedError where there is none."""
        plan, n = self.plan, self.plan.node
        forms = {s: PackedForm(s.width, LANES, 1) for c in plan.components for s in c.sweeps}
        memories, packed = self.bind_inputs([*map(ready, consts)], [*map(ready, xs)], forms)
        counted = None if count is None else self.input(ready(count), n.args[3].type)  # type: ignore[union-attr]
        carried = [p.type for p in plan.carries]
        kinds = [*carried, *n.types[len(carried) :]]
        length, rows = self.size(plan.loop.length), self.size(plan.rows)
        starts, results = self._places(carried, kinds, init)
        finals, stacked = results[: len(carried)], results[len(carried) :]
        memories |= {MemorySource("stack", k): m for k, m in enumerate(stacked)}
        extra = [ZERO] if self.some is None else [FIRST, ZERO]
        numbers, taken = [*self.sizes.values(), *extra], self.signature(extra)
        layout = GpuLayout(memories, packed, finals, starts, counted, length, rows, numbers, taken, self.some)
        layout.arenas = [a for a in (self.held, self.made) if a is not None]
        layout.bindings = [*self.inputs, *self.outputs]
        written = GpuLoopKernel(plan, layout, self.schedule)
        kernel = written.kernel()
        self.check(kernel.entry.signature)
        self.rounds = written.rounds
        return partial(self._put, kernel, kinds, init)

    def _places(self, carried: list[TensorType], kinds: list[TensorType], init: Values) -> tuple[Memories, Memories]:
        """The memories of first carries, and of final carries and stacked rows."""
        self.held, self.made = self._arenas(carried, kinds)
        return self._starts(self.held, init), self._results(self.made, kinds)

    def _put(self, kernel: Kernel, kinds: list[TensorType], init: Values) -> Values:
        out = self.call(self.begin(kernel), self._groups(), [self._zero()])
        return self.unpacked(out) if self.made is None else self.made.values(out[0])

    def _arenas(self, carried: list[TensorType], kinds: list[TensorType]) -> tuple[Arena | None, Arena | None]:
        """One tensor for all results, and one for all first carries, where a dispatch takes no more of them."""
        named = {d for t in kinds for d in t.shape if not isinstance(d, int)}
        numbers = len({*self.sizes, *named}) + 3
        have = self.schedule.have
        room = min((have.words - numbers) // 2, have.tensors) - len(self.operands)
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

    def in_place(self, arena: Arena) -> list[MemoryPiece]:
        """The memories of an arena that every dispatch updates in place."""
        (size,) = arena.flat.type.shape
        whole = FlatMemory("%m_state", arena.stored, (size if isinstance(size, int) else self.size(size),))
        self.inputs.append((Name("%b_state", BINDING), whole))
        return arena.bind(whole, self.size)

    def update(self, arena: Arena, state: ir.Value, symbol: str, groups: ir.Value, extra: Values) -> ir.Value:
        """A dispatch that updates an arena in place."""
        open_ = [self.const(d) for d in arena.flat.type.shape if not isinstance(d, int)]
        (after,) = self.call(symbol, groups, extra, Written(state, open_))
        return after

    @property
    def limits(self) -> DispatchLimits:
        """What a dispatch takes on every device of the target."""
        have = self.schedule.have
        return DispatchLimits(min(have.tensors, super().limits.tensors), have.words)

    def _groups(self) -> ir.Value:
        """One workgroup per tile of rows and component, as many as devices take."""
        rows, tall = self.const(self.plan.rows), self.const(self.schedule.rows)
        tiles = self.e.arith("ceildivui", rows, tall)
        components = len(self.plan.components)
        one = self.e.arith("maxui", tiles, self.const(1))
        few = self.e.arith("minui", one, self.const(GROUPS // components))
        return self.muli(few, self.const(components))

    def _zero(self) -> ir.Value:
        return self.e.hidden(self.const(0))

"""A scan's kernel on a GPU: its operands, workgroups and dispatch."""

from __future__ import annotations

from dataclasses import dataclass, field

from iree.compiler import ir

from lstm_ir.backends.kernels.atoms import Source
from lstm_ir.backends.kernels.call import NAME, Call, Values
from lstm_ir.backends.kernels.gpu_function import ZERO, GpuFunction, GpuLayout
from lstm_ir.backends.kernels.gpu_memory import FlatMemory
from lstm_ir.backends.kernels.gpu_schedule import LANES, GpuSchedule
from lstm_ir.backends.kernels.memory import Memory
from lstm_ir.backends.kernels.text import stored_type
from lstm_ir.types import TensorType

GROUPS = 65535  # workgroups that every device takes along one axis


@dataclass
class GpuDispatch(Call):
    """Builds one kernel call."""

    schedule: GpuSchedule = field(kw_only=True)

    def bound(self, where: list[tuple[str, Memory]], t: TensorType) -> Memory:
        """The memory of the next binding."""
        name = f"{'in' if where is self.inputs else 'out'}{len(where)}"
        sizes = tuple(d if isinstance(d, int) else self.size(d) for d in t.shape)
        m = FlatMemory(f"%m_{name}", stored_type(t.dtype), sizes)
        where.append((f"%b_{name}", m))
        return m

    def run(self, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Values:
        """The dispatch: final carries, then stacked rows."""
        plan, n = self.plan, self.plan.node
        q = {s: 1 for c in plan.components for s in c.sweeps}
        memories, packed = self.bind_inputs(consts, xs, LANES, q)
        starts = [self.input(v, p.type) for v, p in zip(init, plan.carries, strict=True)]
        counted = None if count is None else self.input(count, n.args[3].type)  # type: ignore[union-attr]
        finals = [self.output(p.type) for p in plan.carries]
        for k in range(len(plan.stacked)):
            memories[Source("stack", k)] = self.output(n.types[len(plan.carries) + k])
        length, rows = self.size(n.attrs["length"]), self.size(plan.rows)
        layout = GpuLayout(memories, packed, finals, starts, counted, length, rows, "%groups")
        layout.bindings = [*self.inputs, *self.outputs]
        layout.arguments = self.arguments(["%groups", ZERO])
        symbol = self.executable(GpuFunction(plan, layout, self.schedule).text(NAME))
        groups = self._groups()
        total = self.muli(groups, self.const(len(plan.components)))
        return self.given(self.call(symbol, total, [groups, self._zero()]))

    def _groups(self) -> ir.Value:
        """Workgroups per component: one per tile of rows, as many as devices take."""
        index = ir.IndexType.get()
        rows, tall = self.const(self.plan.rows), self.const(self.schedule.rows)
        tiles = self.e.make("arith.ceildivui", [rows, tall], [index]).result
        most = self.const(GROUPS // len(self.plan.components))
        one = self.e.make("arith.maxui", [tiles, self.const(1)], [index]).result
        return self.e.make("arith.minui", [one, most], [index]).result

    def _zero(self) -> ir.Value:
        zero = self.const(0)
        return self.e.make("util.optimization_barrier", [zero], [zero.type]).result

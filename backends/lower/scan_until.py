"""A `scan` with `until` for IREE: the loop of scan_packed.py as `scf.while`; the host reads a flag after each step."""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.for_loop import Values, goes_on, until_loop, written_in_place
from lstm_ir.backends.lower.scan_packed import PackedLoop
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive.statistics import all as all_of


def ended(e: Emitter, stop: ir.Value, t: TensorType) -> ir.Value:
    """The body's flag as i1[]: whether the flags of all rows hold, where it gives one for each."""
    if not t.rank:
        return stop
    flags = parameter("stop", t)
    return e.graph(Graph("ended", [flags], [all_of(flags)]), [stop])[0]


class UntilLoop(PackedLoop):
    """Emits one scan that ends by what its steps compute."""

    def run(self, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Values:
        """Finals, how many steps ran, and stacked results."""
        e, loop = self.e, self.loop
        if loop.length == 1 and count is None:
            return self._once(consts, init, xs)
        n = self.steps(count)
        one = self.step(consts, xs, n, 1)

        def step(j: ir.Value, flat: Values) -> tuple[ir.Value, ir.Value, Values]:
            new, (stop,) = one(j, j, flat[0])
            on = goes_on(e, ended(e, stop, loop.stop[0].type))
            return self.e.arith("addi", j, e.size(1)), on, [written_in_place(e, new, self.flat.type)]

        ran, _, (last,) = until_loop(e, n, [self.first(init)], [self.flat.type], step)
        found = self.results(last, ran)
        return [*found[: self.carries], e.scalar(ran, DType.i32), *found[self.carries :]]

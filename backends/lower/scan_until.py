"""A `scan` with `until` for IREE: the loops of scan_packed.py as `scf.while`; the host reads a flag after each step."""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir.backends.emit.flat import Flat
from lstm_ir.backends.emit.for_loop import Values, goes_on, until_loop
from lstm_ir.backends.lower.scan_packed import CHUNK, PackedLoop
from lstm_ir.ir.types import DType


class UntilLoop(PackedLoop):
    """Emits one scan that ends by what its steps compute."""

    def run(self, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Values:
        """Finals, how many steps ran, and stacked results."""
        e, loop = self.e, self.loop
        if loop.length == 1 and count is None:
            return self._once(consts, init, xs)
        n = e.hidden(e.size(loop.length))
        if count is not None:  # clamped, so that no value reads or writes outside
            n = self.index("minsi", self.index("maxsi", e.extract(count), e.size(0)), n)
        none, carries = [None for _ in loop.y_types], len(loop.carry_types)
        first = self.whole.begin([*init, *none])
        if not loop.y_types or (isinstance(loop.length, int) and loop.length <= CHUNK):
            ran, _, last = self._while(self.whole, first, consts, xs, e.size(0), n, n)
        else:

            def block(start: ir.Value, flat: Values) -> tuple[ir.Value, ir.Value, Values]:
                left = self.index("minsi", self.index("subi", n, start), e.size(CHUNK))
                held = self.chunk.begin([*(self.whole.get(flat[0], i) for i in range(carries)), *none])
                done, on, given = self._while(self.chunk, held, consts, xs, start, n, left)
                return self.index("addi", start, done), on, [self._merged(flat[0], given, start, done, n)]

            ran, _, (last,) = until_loop(e, n, [first], [self.whole.type], block)
        found = [self.whole.get(last, i) for i in range(len(self.whole.parts))]
        return [*found[:carries], e.scalar(ran, DType.i32), *found[carries:]]

    def _while(
        self, into: Flat, first: ir.Value, consts: Values, xs: Values, start: ir.Value, n: ir.Value, steps: ir.Value
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        """At most `steps` steps from `start` on: how many ran, whether to go on, and the flat tensor."""
        one = self._step(into, consts, xs, start, n, steps, 1)

        def step(j: ir.Value, flat: Values) -> tuple[ir.Value, ir.Value, Values]:
            new, (stop,) = one(j, flat[0])
            return self.index("addi", j, self.e.size(1)), goes_on(self.e, stop), [new]

        ran, on, (last,) = until_loop(self.e, steps, [first], [into.type], step)
        return ran, on, last

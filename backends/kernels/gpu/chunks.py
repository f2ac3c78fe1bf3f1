"""A whole loop as dispatches of so many steps each: what one leaves, the next one starts from.

Carries and stacked results are one tensor that every dispatch updates in place: a loop of IREE's that carries one
tensor carries it safely (see lower/scan_packed.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from iree.compiler import ir

from lstm_ir.backends.emit.for_loop import for_one
from lstm_ir.backends.kernels.call.call import Values
from lstm_ir.backends.kernels.gpu.arena import Arena
from lstm_ir.backends.kernels.gpu.dispatch import GpuDispatch, Memories
from lstm_ir.backends.kernels.text.kernel import Kernel
from lstm_ir.ir.types import TensorType


@dataclass
class ChunkedDispatch(GpuDispatch):
    """Builds the loop of dispatches, of `some` steps each; even, since a carry has two copies."""

    def _places(self, carried: list[TensorType], kinds: list[TensorType], init: Values) -> tuple[Memories, Memories]:
        self.made = Arena(self.e, kinds)
        results: Memories = [*self.in_place(self.made)]
        return results[: len(carried)], results

    def _put(self, kernel: Kernel, kinds: list[TensorType], init: Values) -> Values:
        e, made = self.e, self.made
        assert made is not None
        assert self.some is not None
        symbol, groups, zero = self.begin(kernel), self._groups(), self._zero()
        first = [*init, *[None] * (len(kinds) - len(init))]

        def step(at: ir.Value, state: ir.Value) -> ir.Value:
            return self.update(made, state, symbol, groups, [at, zero])

        bounds = self.const(0), self.const(self.plan.loop.length), self.const(self.some)
        return made.values(for_one(e, bounds, made.flat.begin(first), made.flat.type, step))

"""`scan` for IREE: two nested `scf.for`, each carrying ONE flat tensor of all carries and rows.

Why one: IREE packs what a step gives into one buffer and carries that handle, and its fence, once
per value. When the VM keeps one occurrence in its register, moving another clears it, and the next
step reads a null buffer or waits for nothing (iree-org/iree pull request 24781, open for 3.13). A
loop that carries one tensor carries one handle.
Why each step writes a new tensor instead of updating the carried one: IREE 3.13 updates in place
and lets a dispatch of the same step read a part after its successor has overwritten it. What is
read is never written here, and what is written is not read before the next step.
Where the first one lies: `first_carried` of emit/for_loop.py.
Why its length is hidden: IREE 3.13 puts the body of a loop of one iteration in the loop's place.
There it lets copies into a tensor and a copy out of the same part run at the same time, so that a
worker read a carry before another had written it.
Why nested: the carried tensor is copied on every step. With whole results inside, the copies grow
with T^2; with chunks of K rows they fall to T^2/K + T*K.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.flat import Flat
from lstm_ir.backends.emit.for_loop import Values, for_one
from lstm_ir.backends.emit.mlir_types import tensor
from lstm_ir.backends.emit.shapes import reshape
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.operations import operations
from lstm_ir.ir.types import DType, TensorType

Step: TypeAlias = "Callable[[ir.Value, ir.Value], tuple[ir.Value, list[ir.Value]]]"
"""(step, flat tensor) -> the next flat tensor, and the body's flag that ends the loop, if it has one."""
CHUNK = 32  # rows that the inner loop fills before the outer one stores them
STEPS = 8  # of one iteration, at most
NODES = 256  # of one iteration, at most: compile time grows with them
WORK = 4_000_000  # operations of a step above which the loop around it does not matter


def steps_at_once(loop: Loop) -> int:
    """Steps of one iteration.

    Fewer for long bodies; one for loops in a body, and where the host's work for an iteration is
    little beside the step's own. One where what a step computes has a named size: a product of few
    rows, which IREE's data tiling fills up to 16, then took up to twice as long in most processes
    (a forward LSTM, one row), and gradients twice as long to compile.
    """
    nodes, work = loop.body.nodes, operations(loop.body)
    if any(Loop.of(n, until=True) is not None for n in nodes):
        return 1
    if not isinstance(work, int) or work > WORK:
        return 1
    most = min(STEPS, NODES // max(1, len(nodes)))
    return 1 if most < 2 or (isinstance(loop.length, int) and loop.length < most) else most


class PackedLoop:
    """Emits one scan."""

    def __init__(self, e: Emitter, loop: Loop) -> None:
        self.e, self.loop = e, loop
        self.at_once = steps_at_once(loop)
        self.whole = Flat(e, [*loop.carry_types, *loop.y_types])
        chunks = [t.resized(0, CHUNK) for t in loop.y_types]
        self.chunk = Flat(e, [*loop.carry_types, *chunks])

    def index(self, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
        """arith.`name` of two indices."""
        return self.e.make(f"arith.{name}", [a, b], [ir.IndexType.get()]).result

    def run(self, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Values:
        """Finals and stacked results."""
        e, loop = self.e, self.loop
        if loop.length == 1 and count is None:
            return self._once(consts, init, xs)
        length = n = e.hidden(e.size(loop.length))
        if count is not None:  # clamped, so that no value reads or writes outside
            n = self.index("minsi", self.index("maxsi", e.extract(count), e.size(0)), length)
        carries = len(loop.carry_types)
        if not loop.y_types or (isinstance(loop.length, int) and loop.length <= CHUNK):
            return self._plain(consts, init, xs, n, count)

        def block(start: ir.Value, flat: ir.Value) -> ir.Value:
            steps = self.index("minsi", self.index("subi", n, start), e.size(CHUNK))
            given = self._chunk([self.whole.get(flat, i) for i in range(carries)], consts, xs, start, steps, n)
            return self._merged(flat, given, start, steps, n)

        first = self.whole.begin([*init, *(None for _ in loop.y_types)])
        last = for_one(e, (e.size(0), n, e.size(CHUNK)), first, self.whole.type, block)
        return [self.whole.get(last, i) for i in range(carries + len(loop.y_types))]

    def _merged(self, old: ir.Value, chunk: ir.Value, start: ir.Value, steps: ir.Value, n: ir.Value) -> ir.Value:
        """The carries of a chunk, and `old` with the `steps` rows that it filled from step `start` on."""
        e, carries = self.e, len(self.loop.carry_types)
        first = [self.chunk.get(chunk, i) for i in range(carries)]
        flat = self.whole.start([*first, *(None for _ in self.loop.y_types)])
        for i, reverse in enumerate(self.loop.y_reverse, carries):
            flat = self.whole.keep(flat, i, old)
            low, at = e.size(0), start
            if reverse:  # the last `steps` rows of the chunk go to rows n - start - steps ..
                low = self.index("subi", e.size(CHUNK), steps)
                at = self.index("subi", self.index("subi", n, start), steps)
            flat = self.whole.move_rows(flat, i, at, self.chunk, chunk, i, low, steps)
        return flat

    def _once(self, consts: Values, init: Values, xs: Values) -> Values:
        """A single step, without a loop."""
        e, loop = self.e, self.loop
        zero = e.size(0)
        read = [self._row(x, t, zero) for x, t in zip(xs, loop.x_types, strict=True)]
        out = e.body(loop.body, [e.scalar(zero, DType.i32), *consts, *init, *read])
        carries, given = len(loop.carry_types), out[loop.first_row :]
        rows = [reshape(e, v, t.with_shape(t.shape[1:]), t.shape) for v, t in zip(given, loop.y_types, strict=True)]
        ran = [e.scalar(e.size(1), DType.i32)] if loop.until else []
        return [*out[:carries], *ran, *rows]

    def _plain(self, consts: Values, init: Values, xs: Values, n: ir.Value, count: ir.Value | None) -> Values:
        """One loop, where chunks save nothing: to IREE the tensors of two loops would be one."""
        first = self.whole.begin([*init, *(None for _ in self.loop.y_types)])
        make = partial(self._step, self.whole, consts, xs, self.e.size(0), n, n)
        length = self.loop.length
        whole = count is None and isinstance(length, int) and length % self.at_once == 0
        last = self._steps(n, first, self.whole.type, make, whole=whole)
        return [self.whole.get(last, i) for i in range(len(self.whole.parts))]

    def _chunk(
        self, state: Values, consts: Values, xs: Values, start: ir.Value, steps: ir.Value, n: ir.Value
    ) -> ir.Value:
        e = self.e
        first = self.chunk.begin([*state, *(None for _ in self.loop.y_types)])
        make = partial(self._step, self.chunk, consts, xs, start, n, e.size(CHUNK))
        return self._steps(steps, first, self.chunk.type, make)

    def _steps(
        self, steps: ir.Value, first: ir.Value, t: TensorType, make: Callable[[int], Step],
        *, whole: bool = False,
    ) -> ir.Value:  # fmt: skip
        """So many steps: several in an iteration, and what is left one by one; `whole`: none is left.

        The host's work for an iteration, two allocations and a submission, takes as long as a small
        step. Steps of one iteration hand their carries over as plain tensors, and write no flat one.
        """
        e, at = self.e, self.e.size(0)
        if self.at_once > 1:
            by = e.size(self.at_once)
            end = self.index("muli", self.index("divui", steps, by), by)
            many = make(self.at_once)
            first, at = for_one(e, (at, end, by), first, t, lambda j, flat: many(j, flat)[0]), end
            if whole:
                return first
        one = make(1)
        return for_one(e, (at, steps, e.size(1)), first, t, lambda j, flat: one(j, flat)[0])

    def _step(
        self, into: Flat, consts: Values, xs: Values, start: ir.Value, n: ir.Value, rows: ir.Value, at_once: int
    ) -> Step:
        """Steps `start + j` and on, `at_once` of `n`; the carries and rows they give are written to
        `into`, which has room for `rows` rows.
        """
        e, loop = self.e, self.loop
        carries = len(loop.carry_types)

        def step(j: ir.Value, flat: ir.Value) -> tuple[ir.Value, list[ir.Value]]:
            stop: list[ir.Value] = []
            held = [into.get(flat, i) for i in range(carries)]
            made: list[tuple[ir.Value, list[ir.Value]]] = []
            for u in range(at_once):
                here = j if u == 0 else self.index("addi", j, e.size(u))
                at = self.index("addi", start, here)
                back = self.index("subi", self.index("subi", n, e.size(1)), at)
                read = [
                    self._row(x, t, back if rev else at)
                    for x, t, rev in zip(xs, loop.x_types, loop.x_reverse, strict=True)
                ]
                out = e.body(loop.body, [e.scalar(at, DType.i32), *consts, *held, *read])
                held, stop = list(out[:carries]), list(out[carries : loop.first_row])
                made.append((here, list(out[loop.first_row :])))
            new = into.start([*held, *(None for _ in loop.y_types)])
            for i, reverse in enumerate(loop.y_reverse, carries):
                new = into.keep(new, i, flat)
                for here, out in made:
                    mirrored = self.index("subi", self.index("subi", rows, e.size(1)), here)
                    new = into.put_row(new, i, out[i - carries], mirrored if reverse else here)
            return new, stop

        return step

    def _row(self, x: ir.Value, t: TensorType, at: ir.Value) -> ir.Value:
        row = tensor(t.with_shape(t.shape[1:]))
        return self.e.extract_slice(x, t, [at, *[0] * (t.rank - 1)], [1, *t.shape[1:]], row)

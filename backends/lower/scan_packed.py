"""`scan` for IREE: one `scf.for` that carries ONE flat tensor, twice all carries and then all rows, written in place.

Why one: IREE packs what a step gives into one buffer and carries that handle, and its fence, once
per value. When the VM keeps one occurrence in its register, moving another clears it, and the next
step reads a null buffer or waits for nothing (iree-org/iree pull request 24781, open for 3.13). A
loop that carries one tensor carries one handle.
Why carries twice: IREE 3.13 updates in place and lets a dispatch of the same step read a part after
its successor has overwritten it. A step reads one half and writes the other, and the next step turns
them; rows are never read.
Why it is in place, so that no step copies what it does not write: `written_in_place` of emit/for_loop.py.
Where the first one lies: `first_carried` of emit/for_loop.py.
Why its length is hidden: IREE 3.13 puts the body of a loop of one iteration in the loop's place.
There it lets copies into a tensor and a copy out of the same part run at the same time, so that a
worker read a carry before another had written it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.flat import Flat
from lstm_ir.backends.emit.for_loop import Values, for_one, number_of_steps
from lstm_ir.backends.emit.mlir_types import tensor
from lstm_ir.backends.emit.shapes import reshape
from lstm_ir.backends.lower.behind_loops import apart
from lstm_ir.backends.lower.own_memory import copied
from lstm_ir.backends.lower.tuned import NODES, STEPS, WORK
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.operations import operations
from lstm_ir.ir.types import DType, TensorType

Step: TypeAlias = "Callable[[ir.Value, ir.Value, ir.Value], tuple[ir.Value, list[ir.Value]]]"
"""(step, iterations before, flat tensor) -> the flat tensor, and the body's flag that ends the loop, if it has one."""


# Ops whose result may lie in an operand's memory too: converts between equals, pads of nothing, loops of one step.
_MOVES = ("convert", "bitcast_convert", "pad", "scan")


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


def _lent(loop: Loop) -> set[Value]:
    """Values of a step that may lie where a carry does: IREE reads them there when it writes them, which is too late.

    It then has the step write to a copy of all.
    """
    found = set(loop.carry_params)
    for n in loop.body.nodes:
        moves = Trait.data_movement in n.op.traits or n.op.name in _MOVES
        if moves and not found.isdisjoint(n.inputs):
            found.update(n.values)
    return found


class PackedLoop:
    """Emits one scan."""

    def __init__(self, e: Emitter, loop: Loop) -> None:
        self.e, self.loop = e, loop
        self.at_once = steps_at_once(loop)
        self.carries = len(loop.carry_types)
        self.flat = Flat(e, [*loop.carry_types, *loop.carry_types, *loop.y_types])
        parts = self.flat.parts
        self.half: Dim = parts[self.carries].begin if self.carries else 0
        self.lent = _lent(loop)

    def run(self, consts: Values, init: Values, xs: Values, count: ir.Value | None) -> Values:
        """Finals and stacked results."""
        if self.loop.length == 1 and count is None:
            return self._once(consts, init, xs)
        e, n = self.e, self.steps(count)
        flat, done, turns = self.first(init), e.size(0), e.size(0)
        if self.at_once > 1:
            whole = e.arith("divui", n, e.size(self.at_once))
            end = e.arith("muli", whole, e.size(self.at_once))
            many = self.step(consts, xs, n, self.at_once)
            flat = self._for(done, end, turns, flat, many, self.at_once)
            done, turns = end, whole
        length = self.loop.length
        if self.at_once == 1 or count is not None or not isinstance(length, int) or length % self.at_once:
            flat = self._for(done, n, turns, flat, self.step(consts, xs, n, 1), 1)
            turns = e.arith("addi", turns, e.arith("subi", n, done))
        return self.results(flat, turns)

    def _for(self, low: ir.Value, high: ir.Value, before: ir.Value, flat: ir.Value, step: Step, by: int) -> ir.Value:
        """Steps `low` to `high`, so many in an iteration, behind so many iterations."""

        def one(j: ir.Value, flat: ir.Value) -> ir.Value:
            turn = self.e.arith("divui", self.e.arith("subi", j, low), self.e.size(by))
            return step(j, self.e.arith("addi", before, turn), flat)[0]

        return for_one(self.e, (low, high, self.e.size(by)), flat, self.flat.type, one)

    def steps(self, count: ir.Value | None) -> ir.Value:
        """How many there are."""
        return number_of_steps(self.e, self.e.hidden(self.e.size(self.loop.length)), count)

    def first(self, init: Values) -> ir.Value:
        """The flat tensor before the first step."""
        return self.flat.begin([*init, *(None for _ in self.flat.parts[self.carries :])])

    def results(self, flat: ir.Value, turns: ir.Value) -> Values:
        """Finals and stacked results, after so many iterations."""
        rows = range(2 * self.carries, len(self.flat.parts))
        return [*self._carried(flat, turns), *(self.flat.get(flat, i) for i in rows)]

    def _once(self, consts: Values, init: Values, xs: Values) -> Values:
        """A single step, without a loop."""
        e, loop = self.e, self.loop
        zero = e.size(0)
        read = [self._row(x, t, zero) for x, t in zip(xs, loop.x_types, strict=True)]
        out = e.body(loop.body, [e.scalar(zero, DType.i32), *consts, *init, *read])
        given = out[loop.first_row :]
        rows = [reshape(e, v, t.with_shape(t.shape[1:]), t.shape) for v, t in zip(given, loop.y_types, strict=True)]
        ran = [e.scalar(e.size(1), DType.i32)] if loop.until else []
        return [*out[: self.carries], *ran, *rows]

    def step(self, consts: Values, xs: Values, n: ir.Value, at_once: int) -> Step:
        """Steps j and on, `at_once` of `n`. Those of one iteration hand their carries over as plain tensors.

        The host's work for an iteration, an allocation and a submission, takes as long as a small step.
        """
        e, loop, carries = self.e, self.loop, self.carries

        def step(j: ir.Value, turn: ir.Value, flat: ir.Value) -> tuple[ir.Value, list[ir.Value]]:
            stop: list[ir.Value] = []
            held = [e.barrier(v, t) for v, t in zip(self._carried(flat, turn), loop.carry_types, strict=True)]
            made: list[tuple[ir.Value, ir.Value, list[ir.Value]]] = []
            for u in range(at_once):
                at = j if u == 0 else e.arith("addi", j, e.size(u))
                back = e.arith("subi", e.arith("subi", n, e.size(1)), at)
                read = [
                    self._row(x, t, back if rev else at)
                    for x, t, rev in zip(xs, loop.x_types, loop.x_reverse, strict=True)
                ]
                out = e.body(loop.body, [e.scalar(at, DType.i32, own=_counts(loop.body)), *consts, *held, *read])
                out = apart(e, loop.body.outputs, out, loop.body)
                if u == 0:  # later ones lie elsewhere
                    out = self._moved(out)
                held, stop = list(out[:carries]), list(out[carries : loop.first_row])
                made.append((at, back, list(out[loop.first_row :])))
            after = e.arith("addi", turn, e.size(1))
            for i, (v, t) in enumerate(zip(held, loop.carry_types, strict=True)):
                flat = self.flat.write(flat, v, t, self._begin(i, after))
            for i, reverse in enumerate(loop.y_reverse):
                for at, back, rows in made:
                    flat = self.flat.put_row(flat, 2 * carries + i, rows[i], back if reverse else at)
            return flat, stop

        return step

    def _moved(self, out: Sequence[ir.Value]) -> Values:
        """Results of a step, those that lie where a carry does as copies."""
        made: dict[Value, ir.Value] = {}
        for v, x in zip(out, self.loop.body.outputs, strict=True):
            if x not in made:
                made[x] = copied(self.e, v, x.type) if x in self.lent else v
        return [made[x] for x in self.loop.body.outputs]

    def _carried(self, flat: ir.Value, turns: ir.Value) -> Values:
        """The carries after so many iterations."""
        return [self.flat.read(flat, t, self._begin(i, turns)) for i, t in enumerate(self.loop.carry_types)]

    def _begin(self, i: int, turns: ir.Value) -> ir.Value:
        """Where carry i lies after so many iterations: in one half of two."""
        other = self.e.arith("muli", self.e.arith("remui", turns, self.e.size(2)), self.e.size(self.half))
        return self.e.arith("addi", self.e.size(self.flat.parts[i].begin), other)

    def _row(self, x: ir.Value, t: TensorType, at: ir.Value) -> ir.Value:
        row = tensor(t.with_shape(t.shape[1:]))
        return self.e.extract_slice(x, t, [at, *[0] * (t.rank - 1)], [1, *t.shape[1:]], row)


def _counts(body: Graph) -> bool:
    """Whether a loop of the body has a number of steps that data say.

    The host computes it, of the step's number too, and IREE 3.13 makes a tensor of it again, which it clones into the
    submissions that read it, one of them in another loop, and may leave in none.
    """
    return any(n.op.name == "scan" and Loop(n).count is not None for n in body.nodes)

"""Loops with `until`: the kernel ends after the step in which the flags of all rows held.

The loop is planned as one without `until`, of one carry more: `ended` i32[B] holds the number of the step, counted from
1, where a row's flag held in it, and NEVER where it did not. Once all members are done with a step each of them looks
whether all rows hold the number of this step. Members need not look at once: one that comes late finds numbers of
later steps, which are others, and goes on to the step after which the others have left, whose numbers stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.kernels.cpu.team import StepBlock
from lstm_ir.backends.kernels.text.memory import Memory, load_scalar
from lstm_ir.backends.kernels.text.statements import TextOperand
from lstm_ir.backends.kernels.text.steps import TimeStep
from lstm_ir.backends.kernels.text.text import Text
from lstm_ir.ir.graph import Graph, Node, Value, make
from lstm_ir.ir.leaf import constant, parameter
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive import elementwise as ew
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.primitive.fill import zeros
from lstm_ir.ops.primitive.reduce import max as max_of

NEVER = (1 << 31) - 1
Run: TypeAlias = tuple[TextOperand, TextOperand]  # whether steps still run, and how many ran where they do not


def numbered(n: Node) -> Node:
    """A loop with `until` as one that ends by its length alone; its last carry is `ended`."""
    loop = Loop(n)
    (flag,) = loop.stop
    t = flag.type.with_dtype(DType.i32)
    ended = parameter("ended", t)
    number, never = (broadcast_in_dim(v, t.shape, ()) for v in (loop.step + 1, constant(NEVER, DType.i32)))
    params = [loop.step, *loop.const_params, *loop.carry_params, ended, *loop.x_params]
    body = Graph(loop.body.name, params, [*loop.next, ew.select(flag, number, never), *loop.rows])
    init = (*loop.init, zeros(t.shape, t.dtype))
    attrs = {**n.attrs, "body": body, "until": False}
    return make(n.op, loop.consts, init, loop.xs, loop.count, loc=n.loc, **attrs)


def until_ended(
    t: Text, block: StepBlock, state: Run, last: TextOperand, ended: Memory, rows: TextOperand,
    write: Callable[[TimeStep], None],
) -> Run:  # fmt: skip
    """Steps of a block until all rows have ended, or all of them."""
    kinds, true = ["i1", "index"], t.constant("true", "i1")
    at, (going, ran), (goes, out) = t.carried(block.first, block.end, t.index(1), list(state), kinds)
    step = TimeStep.make(t, at, last)
    with t.when(going):
        write(step)
    number = t.add(at, 1)
    now = t.binary("andi", going, _all(t, ended, step.other, rows, number), "i1")
    on = t.binary("xori", now, true, "i1")
    t.close([t.binary("andi", going, on, "i1"), t.select(now, number, ran)], kinds)
    return goes, out


def _all(t: Text, ended: Memory, half: TextOperand, rows: TextOperand, number: TextOperand) -> TextOperand:
    """Whether every row has ended in the step of this number."""
    wanted = t.op("arith.index_cast {} : index to i32", number)
    if len(ended.sizes) == 1:
        return t.compare("eq", load_scalar(t, ended, [half]), wanted, "i32")
    true = t.constant("true", "i1")
    row, (so_far,), (out,) = t.carried(t.index(0), rows, t.index(1), [true], ["i1"])
    here = t.compare("eq", load_scalar(t, ended, [half, row]), wanted, "i32")
    t.close([t.binary("andi", so_far, here, "i1")], ["i1"])
    return out


def steps_run(e: Emitter, ended: ir.Value, t: TensorType, limit: ir.Value) -> ir.Value:
    """How many steps ran, i32[], of at most `limit`: the largest number, unless a row never ended; one without rows."""
    numbers, most = parameter("ended", t), parameter("limit", TensorType((), DType.i32))
    found: Value = ew.minimum(ew.maximum(max_of(numbers), 1) if t.rank else numbers, most)
    return e.graph(Graph("steps", [numbers, most], [found]), [ended, e.scalar(limit, DType.i32, own=True)])[0]

"""What a body computes from constants, before its loop. Where no step runs it demands nothing of values."""

from __future__ import annotations

from collections.abc import Container, Sequence

from lstm_ir.ir import dims
from lstm_ir.ir.clone import needed
from lstm_ir.ir.graph import Arg, Node, Value, map_arg
from lstm_ir.ir.location import at
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Range
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import broadcast_to
from lstm_ir.ops.primitive.size import size, size_value


def may_be_idle(loop: Loop) -> bool:
    """Whether a call may run no step."""
    return loop.count is not None or dims.at_least(loop.length, 1) is not True


def can_stand_before(n: Node, loop: Loop) -> bool:
    """Whether a node of the body can be computed before the loop, and refuses nothing where no step runs.

    What it demands is then asked of values that were moved into their range, which must not be empty.
    """
    stated = {r.dim for r in n.requires}
    rooms = (dims.add(r.high, dims.mul(r.low, -1)) for r in n.ranges)
    return not may_be_idle(loop) or all(room in stated or dims.at_least(room, 0) is True for room in rooms)


def put_before(
    loop: Loop, values: Sequence[Value], known: dict[Value, Value], rule: str, inputs: Container[Value] | None = None
) -> None:
    """`values` of the body over what `known` has of it, outside; `known` gains all that is computed for them.

    inputs: those of the entry, which a call checks by itself. Without it any parameter is taken for one.
    """
    for n in needed([v.node for v in values], known):
        with at(n.loc.through(rule)):
            args = _moved_inside(n, tuple(map_arg(a, known) for a in n.args), loop, inputs)
        for old, new in zip(n.values, n.with_args(args).values, strict=True):
            known.setdefault(old, new)


def _moved_inside(n: Node, args: tuple[Arg, ...], loop: Loop, inputs: Container[Value] | None) -> tuple[Arg, ...]:
    """Operands; where no step runs, values that lie in their range."""
    out = list(args)
    for r in n.ranges if may_be_idle(loop) else ():
        k = n.op.operand_index(r.operand)
        v = out[k]
        if isinstance(v, Value) and v.op != "constant" and not _checked(v, inputs):
            out[k] = _if_a_step_runs(v, r, loop)
    return tuple(out)


def _checked(v: Value, inputs: Container[Value] | None) -> bool:
    return v.op == "parameter" if inputs is None else v in inputs


def _if_a_step_runs(v: Value, r: Range, loop: Loop) -> Value:
    runs = None if dims.at_least(loop.length, 1) is True else e.less(0, size(loop.length))
    if loop.count is not None:
        counted = e.less(0, loop.count)
        runs = counted if runs is None else e.logical_and(runs, counted)
    assert runs is not None
    inside = broadcast_to(size_value(r.low, v.dtype), v.shape)
    return e.select(broadcast_to(runs, v.shape), v, inside)

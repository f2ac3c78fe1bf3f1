"""Values that an op writes over.

IREE updates in place what nothing reads after the update in the order of the module. Later it puts
ops that can run together where the last of their operands is made, which may be before an op that
reads what they write over: another result of the call then holds the update (3.13,
ScheduleConcurrency.cpp). So what is written over here has a single reader: the op that writes.
"""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.regions import empty, generic, signed_back, signless
from lstm_ir.backends.emit.shapes import number_filled
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.types import DType, TensorType

_WRITERS = ("scatter_add", "dynamic_update_slice")


def own(e: Emitter, n: Node, operand: Value, v: ir.Value, t: TensorType) -> ir.Value:
    """`v`, what `n` makes of its operand and writes over, in memory that nothing else reads.

    That costs a copy where the operand is no fill and no result of such an op, or has other readers;
    of what is computed element by element, a second store in the same dispatch.
    """
    if e.target is None or (v is e.known[operand] and _single(e, n, operand)):
        return v
    return copied(e, v, t)


def _single(e: Emitter, n: Node, v: Value) -> bool:
    """Whether only `n` reads `v`, and it is not merged with a twin, nor other memory seen anew."""
    if e.within is None or e.within.users[v] != (n,) or v in e.within.outputs:
        return False
    if n.inputs.count(v) > 1 or v in e.preset or v.dtype in (DType.i1, DType.u8, DType.u32):
        return False
    through = any(0 in x.shape for x in v.node.inputs)  # an empty update: the operand itself
    return number_filled(v) is not None or (v.op in _WRITERS and not through)


def copied(e: Emitter, v: ir.Value, t: TensorType) -> ir.Value:
    """`v` by a dispatch that copies: IREE leaves out a copy that it knows as one, and merges two alike."""
    bits, kind = signless(e, v, t)
    taken = _true(e)

    def body(args: list[ir.Value]) -> ir.Value:
        zero = _number(e, args[0].type, 0)
        return e.make("arith.select", [taken, args[0], zero], [zero.type]).result

    places = [f"d{i}" for i in range(t.rank)]
    made = generic(e, [bits], empty(e, kind), [places, places], t.rank, body)
    return signed_back(e, e.barrier(made, kind), t)


def _true(e: Emitter) -> ir.Value:
    """True, which IREE cannot know, another one each time; in a loop one of the iteration's own,
    since what is made before a loop would be written in every iteration.

    What hides it stands first in the function: IREE submits apart what stands before and after.
    """
    i1, index = ir.IntegerType.get_signless(1), ir.IndexType.get()
    assert e.anchor is not None
    with ir.InsertionPoint(e.anchor):
        hidden = e.hidden(_number(e, i1, 1) if e.turn is None else _number(e, index, -1))
    if e.turn is None:
        return hidden
    return e.compare("ne", e.turn, hidden)


def _number(e: Emitter, kind: ir.Type, n: int) -> ir.Value:
    floats = not isinstance(kind, (ir.IntegerType, ir.IndexType))
    attr = (ir.FloatAttr if floats else ir.IntegerAttr).get(kind, n)
    return e.make("arith.constant", [], [kind], {"value": attr}).result

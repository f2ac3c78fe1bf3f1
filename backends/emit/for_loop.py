"""`scf.for` over tensors, as IREE takes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.mlir_types import tensor
from lstm_ir.ir.types import TensorType

Values: TypeAlias = "list[ir.Value]"


def for_loop(
    e: Emitter,
    bounds: tuple[ir.Value, ir.Value, ir.Value],
    init: Values,
    types: Sequence[TensorType],
    step: Callable[[ir.Value, Values], Sequence[ir.Value]],
) -> Values:
    """`step(index, carried)` gives what the next iteration carries. bounds: low, high, by.

    IREE does not look through loops: the sizes of what is carried are stated at every border.
    """
    kinds = [v.type for v in init]
    loop = e.make("scf.for", [*bounds, *init], kinds, regions=1)
    locs = [ir.Location.unknown()] * (1 + len(kinds))
    block = loop.regions[0].blocks.append(ir.IndexType.get(), *kinds, arg_locs=locs)
    with ir.InsertionPoint(block):
        index, *carried = block.arguments
        tied = [e.tie(v, t) for v, t in zip(carried, types, strict=True)]
        outer, e.turn = e.turn, index
        e.make("scf.yield", step(index, tied), [])
        e.turn = outer
    return [e.tie(v, t) for v, t in zip(loop.results, types, strict=True)]


def for_one(
    e: Emitter,
    bounds: tuple[ir.Value, ir.Value, ir.Value],
    init: ir.Value,
    t: TensorType,
    step: Callable[[ir.Value, ir.Value], ir.Value],
) -> ir.Value:
    """As `for_loop`, carrying one tensor."""
    return for_loop(e, bounds, [init], [t], lambda at, carried: [step(at, carried[0])])[0]


def first_carried(e: Emitter, t: TensorType, make: Callable[[], ir.Value]) -> ir.Value:
    """What `make` gives, in memory of its own, for a loop to carry first.

    IREE packs what one submission makes into one buffer, and a loop carries buffer and offset. What
    an iteration gives has the offset 0. Where sizes are named, the first offset is a util.align of
    which IREE 3.13 may infer no range (AlignOp::inferResultRanges), and it then takes the range of
    the loop's offset for that of the 0 alone: the first iteration reads another tensor. A branch
    that is never left out is a submission apart, for which the host does not wait.
    """
    if e.static or e.target is None:
        return make()
    one = ir.IntegerType.get_signless(1)
    taken = e.make("arith.constant", [], [one], {"value": ir.IntegerAttr.get(one, 1)}).result
    taken = e.hidden(taken)
    branch = e.make("scf.if", [taken], [tensor(t)], regions=2)
    for region, given in zip(branch.regions, (make, None), strict=True):
        with ir.InsertionPoint(region.blocks.append()):
            e.make("scf.yield", [given() if given else e.filled(0, t, own=True)], [])
    return e.tie(branch.result, t)

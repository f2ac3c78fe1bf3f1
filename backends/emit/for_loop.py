"""`scf.for` and `scf.while` over tensors, as IREE takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.ir.target import DEVICE
from lstm_ir.ir.types import DType, TensorType

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
    """As `for_loop`, carrying one tensor, in place where an iteration updates it."""
    return for_loop(e, bounds, [init], [t], lambda at, carried: [written_in_place(e, step(at, carried[0]), t)])[0]


def until_loop(
    e: Emitter,
    high: ir.Value,
    init: Values,
    types: Sequence[TensorType],
    step: Callable[[ir.Value, Values], tuple[ir.Value, ir.Value, Values]],
) -> tuple[ir.Value, ir.Value, Values]:
    """`step(index, carried)` gives the next index, whether to go on (i1), and what is carried on, while index < high.

    From index 0; gives the last index, whether no step said to end, and what was carried. The host waits for every
    answer. The end, high or 0, is carried and not the answer: of a loop that carries what its next step does not read
    IREE 3.13 makes one of more results than operands, and then writes past the list of their types.
    """
    index = ir.IndexType.get()
    kinds = [index, index, *(v.type for v in init)]
    loop = e.make("scf.while", [e.size(0), high, *init], kinds, regions=2)
    test, body = (r.blocks.append(*kinds, arg_locs=[ir.Location.unknown()] * len(kinds)) for r in loop.regions)
    with ir.InsertionPoint(test):
        at, end, *_ = test.arguments
        e.make("scf.condition", [e.compare("slt", at, end), *test.arguments], [])
    with ir.InsertionPoint(body):
        at, end, *carried = body.arguments
        outer, e.turn = e.turn, at
        after, on, given = step(at, [e.tie(v, t) for v, t in zip(carried, types, strict=True)])
        end = e.arith("select", on, end, e.size(0))
        e.make("scf.yield", [after, end, *given], [])
        e.turn = outer
    last, end, *left = loop.results
    if e.target is not None:  # IREE 3.13 finds no end in simplifying a loop of whose results the index alone is read
        left = [e.hidden(v) for v in left]
    return last, e.compare("sgt", end, e.size(0)), [e.tie(v, t) for v, t in zip(left, types, strict=True)]


def number_of_steps(e: Emitter, length: ir.Value, count: ir.Value | None) -> ir.Value:
    """How many there are, clamped, so that no value reads or writes outside."""
    if count is None:
        return length
    least = e.arith("maxsi", e.extract(count), e.size(0))
    return e.arith("minsi", least, length)


def goes_on(e: Emitter, stop: ir.Value) -> ir.Value:
    """Whether a flag i1[] of the body is false; the host waits for it."""
    read = e.extract(e.convert(stop, TensorType((), DType.i1), DType.i32))
    return e.compare("eq", read, e.size(0))


def written_in_place(e: Emitter, v: ir.Value, t: TensorType) -> ir.Value:
    """What an iteration has updated, on the module's device, for the loop to carry on.

    IREE 3.13 asks where a loop's tensors lie, and finds no answer in updates of what the loop itself carries; then it
    copies the whole tensor to the device of the first op that reads it, in each iteration. A transfer to where it is
    says it (`Stream/Analysis/Affinity.cpp`), and is itself left out.
    """
    target = ir.Attribute.parse(f"#hal.device.promise<@{DEVICE}>")
    sizes = [e.size(d) for d in t.shape if not isinstance(d, int)]
    return e.make("flow.tensor.transfer", [v, *sizes], [v.type], {"target": target}).result


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
    branch = e.choice(taken, [t])
    for region, given in zip(branch.regions, (make, None), strict=True):
        with ir.InsertionPoint(region.blocks.append()):
            e.make("scf.yield", [given() if given else e.filled(0, t, own=True)], [])
    return e.tie(branch.result, t)

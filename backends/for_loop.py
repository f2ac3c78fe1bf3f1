"""`scf.for` over tensors, as IREE takes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from iree.compiler import ir

from lstm_ir.backends.emitter import Emitter
from lstm_ir.types import TensorType

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
        e.make("scf.yield", step(index, tied), [])
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

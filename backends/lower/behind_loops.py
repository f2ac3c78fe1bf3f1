"""Parts that are written into one tensor, where a loop made one and an op before the loop another.

What makes a part would write it where it belongs. IREE 3.13 (EmplaceAllocations.cpp) moves what made the parts
before it there, a loop too, and does not see what the loop's body reads: "operand #0 does not dominate this use".
"""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.reach import reached


def apart(e: Emitter, values: Sequence[Value], parts: Sequence[ir.Value], body: Graph | None = None) -> list[ir.Value]:
    """`parts`, made from `values`, of a loop's body or else of what is emitted now, of which those that follow a loop's
    are not made in place."""
    within = e.within if body is None else body
    if within is None or not e.host_loops:
        return list(parts)
    behind = reached(within.nodes, (v for loop in e.host_loops for v in loop.values))
    pairs = enumerate(zip(parts, values, strict=True))
    return [e.opaque(x, v.type) if any(u in behind for u in values[:k]) else x for k, (x, v) in pairs]

"""How many tensors a dispatch reads that IREE makes of ops: fewer than a dispatch takes.

IREE 3.13 fuses elementwise ops with what makes their operands until an op reads 48 tensors, whatever
devices take: 32 tensors on the CPU, and 64 words of offsets and sizes there, 32 on Vulkan. Where sizes are
named, and in loops, each tensor has an offset of two words. The module is then refused when it is loaded
("dispatch requiring 84 constants exceeds limit of 64"), or when it is called. So what an expression reads is
counted as it is written, and one that reads too much is cut: an operand is made in a dispatch of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from iree.compiler import ir

from lstm_ir.backends.emit.options import DispatchLimits
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.literals import splat
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.target import TargetInfo

Reads = frozenset[Hashable]
_NOTHING: Reads = frozenset()
_COUNTED = ("iota", "dim")  # computed from places and sizes alone
_SAME = ("broadcast_in_dim", "reshape", "transpose", "reverse")
_MAYBE = ("gather", "pad", "reduce_sum", "reduce_max", "reduce_min", "reduce_prod")  # fused, or a tensor of their own


def most_reads(target: TargetInfo, have: DispatchLimits, moving: bool) -> int:
    """Of one expression. moving: where tensors begin is known at the call. A quarter is left to results and sizes."""
    words = have.words if target.kind in ("cpu", "cuda", "hip") else have.words // 2
    tensors = target.bindings or have.tensors
    return 3 * (min(tensors, words // 2) if moving else tensors) // 4


class FusedReads:
    """What the values of a function read where IREE fuses all that it may: at least themselves."""

    def __init__(self) -> None:
        self._reads: dict[ir.Value, Reads] = {}

    def of(self, v: ir.Value) -> Reads:
        """What a dispatch reads for a value."""
        return self._reads.get(v, frozenset([v]))

    def too_many(self, n: Node, operands: Sequence[tuple[Value, ir.Value]], most: int) -> list[Value]:
        """Operands that a node reads from memory, so that it reads at most so many tensors."""
        if not _is_fused(n):
            return []
        reads = {x: self.of(v) for x, v in operands if x.type.rank or x.dtype.is_float}
        cut: list[Value] = []
        while reads and len(_NOTHING.union(*reads.values())) > most:
            longest = max(reads, key=lambda x: len(reads[x]))
            if len(reads[longest]) < 2:
                break
            reads[longest] = frozenset([longest])
            cut.append(longest)
        return cut

    def put(self, n: Node, operands: Sequence[ir.Value], results: Sequence[ir.Value]) -> None:
        """What the results of a node read."""
        if n.op.name in _COUNTED or (n.op.name == "constant" and splat(n.values[0]) is not None):
            found = _NOTHING
        elif _is_fused(n):
            found = _NOTHING.union(*map(self.of, operands))
        else:
            return
        for v in results:
            if n.op.name == "slice":
                self._reads[v] = frozenset((v, r) for r in found)
            else:
                self._reads[v] = found | {v} if n.op.name in _MAYBE else found


def _is_fused(n: Node) -> bool:
    return Trait.elementwise in n.op.traits or n.op.name in (*_SAME, *_MAYBE, "slice")

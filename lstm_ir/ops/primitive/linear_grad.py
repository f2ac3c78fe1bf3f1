"""Gradient of `dot_general`: each operand's is the cotangent times the other operand."""

from __future__ import annotations

from lstm_ir import ops
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ops.primitive.elementwise_grad import Cts, only

Ints = tuple[int, ...]


def dot_general(node: Node, cts: Cts) -> Cts:
    """d lhs = ct . rhs over rhs's free axes, d rhs = ct . lhs over lhs's; axes in their order."""
    ct, (a, b), attrs = only(cts), node.inputs, node.attrs
    lb, rb = attrs["lhs_batching_dimensions"], attrs["rhs_batching_dimensions"]
    lc, rc = attrs["lhs_contracting_dimensions"], attrs["rhs_contracting_dimensions"]
    rows = a.rank - len(lb) - len(lc)
    lhs_free = tuple(range(len(lb), len(lb) + rows))
    rhs_free = tuple(range(len(lb) + rows, ct.rank))
    return (
        _operand(ct, b, a.rank, (lb, lc), (rb, rc), rhs_free),
        _operand(ct, a, b.rank, (rb, rc), (lb, lc), lhs_free),
    )


def _operand(
    ct: Value,
    other: Value,
    rank: int,
    mine: tuple[Ints, Ints],
    its: tuple[Ints, Ints],
    summed: Ints,
) -> Value:
    """The gradient of one operand: `summed` are ct's axes that came from the other one."""
    (batch, contracted), (its_batch, its_contracted) = mine, its
    its_free = tuple(a for a in range(other.rank) if a not in its_batch and a not in its_contracted)
    lead = tuple(range(len(batch)))
    out = ops.dot_general(ct, other, (summed, its_free), (lead, its_batch))
    # out has batch, my free axes, then its contracting axes in ascending order
    free = [a for a in range(rank) if a not in batch and a not in contracted]
    order = sorted(range(len(its_contracted)), key=lambda i: its_contracted[i])
    have = [*batch, *free, *(contracted[i] for i in order)]
    return ops.transpose(out, tuple(have.index(a) for a in range(rank)))

"""What IREE may fuse with the result of a product, and packs as it packs the product."""

from __future__ import annotations

from collections.abc import Iterator

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.ir.graph import Node
from lstm_ir.ir.literals import splat
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.reach import reached
from lstm_ir.ir.types import DType


def meets_a_mask(e: Emitter, n: Node) -> bool:
    """Whether booleans from memory may be fused with what reads the product.

    IREE 3.13 hands the product's packed layout on to what is fused with it, and to what makes other operands of
    that: it packs booleans as single bits where memory has bytes. The module is invalid, and computes other numbers.
    """
    read = (v for m in _fused_with(e, n) for v in m.inputs)
    return any(v.dtype is DType.i1 and v.rank > 0 and not fuses(v.node) and splat(v) is None for v in read)


def meets_columns(e: Emitter, n: Node) -> bool:
    """Whether columns of wider rows may be fused with what reads the product, of named sizes or of batches.

    IREE 3.13 reads and packs them in vectors of 32 KiB, which it then refuses ("large vector sizes"): 30 rows of 256
    columns in each of 16 batches.
    """
    batched = bool(n.attrs["lhs_batching_dimensions"])
    slices = [m for m in _fused_with(e, n) if of_columns(m)]
    found = [m for m in slices if batched or not m.types[0].is_static]
    if not found or e.within is None:
        return False
    behind = reached(e.within.nodes, n.values)
    return any(m.values[0] not in behind for m in found)


def gives_several(e: Emitter, n: Node) -> bool:
    """Whether several tensors may leave the dispatch in which what reads the product is computed: an activation and its
    slope, in a training step.

    IREE 3.13 unpacks the first of them in vectors of 16 KiB, which it then refuses; the module was compiled again.
    In loops, of few rows, it was not seen, and a dispatch more is a dispatch for each step.
    """
    if e.within is None or not e.at_top:
        return False
    found, walk, leaving = set[Node](), [n], 0
    while walk:
        m = walk.pop()
        if m in found:
            continue
        found.add(m)
        users = [u for v in m.values for u in e.within.users.get(v, ())]
        inside = [u for u in users if fuses(u)]
        leaving += len(inside) < len(users) or any(v in e.within.outputs for v in m.values)
        walk += inside
    return leaving > 1


def of_columns(n: Node) -> bool:
    """Whether it cuts columns out of wider rows."""
    return n.op.name == "slice" and n.types[0].shape[-1:] != n.inputs[0].shape[-1:]


def _fused_with(e: Emitter, n: Node) -> Iterator[Node]:
    """What computes or rearranges, reads the product, or makes an operand of such a one."""
    users = {} if e.within is None else e.within.users
    found, walk = {n}, list(users.get(n.values[0], ()))
    while walk:
        m = walk.pop()
        if m in found or not fuses(m):
            continue
        found.add(m)
        yield m
        walk += [u for v in m.values for u in users.get(v, ())]
        walk += [v.node for v in m.inputs]


def fuses(n: Node) -> bool:
    """Whether IREE may put the node into one dispatch with what reads it."""
    return bool({Trait.elementwise, Trait.data_movement} & n.op.traits)

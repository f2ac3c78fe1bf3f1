"""Ops that move blocks of places to the axis of rows and back: TensorFlow writes dilated convolutions with them."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.slices import sliced
from lstm_ir.importers.tensorflow.call import Call
from lstm_ir.importers.tensorflow.table import taken
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value

_KNOWN = "sizes of blocks that only a call knows"


def _blocks(c: Call, x: Value) -> tuple[list[int], list[tuple[Dim, Dim]]]:
    """Places of a block along each axis from the second on, and how many stand before and after."""
    blocks, edges = c.numbers(1, "the sizes of blocks"), c.elements(2)
    if edges is None or edges.shape != (len(blocks), 2) or x.rank <= len(blocks) or min(blocks, default=1) < 1:
        raise NodeRefusedError(f"the operand is {x.type}, blocks are {blocks}")
    return blocks, [(a, b) for a, b in edges]


@taken("SpaceToBatchND", refused=_KNOWN)
def space_to_batch(c: Call) -> Value:
    """Places that stand apart by the size of a block become rows, the first place of all blocks first."""
    x = c.value(0)
    blocks, edges = _blocks(c, x)
    rest = x.rank - 1 - len(blocks)
    low, high = ([0, *(e[k] for e in edges), *[0] * rest] for k in (0, 1))
    x = li.pad(x, low, high)
    split: list[Dim] = [x.shape[0]]
    for size, block in zip(x.shape[1:], blocks, strict=False):
        if dims.mul(dims.floordiv(size, block), block) != size:
            raise NodeRefusedError(f"{size} places are not known to divide into blocks of {block}")
        split += [dims.floordiv(size, block), block]
    m = len(blocks)
    order = [*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m, 2), *range(2 * m + 1, 2 * m + 1 + rest)]
    tail = x.shape[1 + m :]
    y = li.transpose(li.reshape(x, (*split, *tail)), order)
    rows = dims.product((*blocks, x.shape[0]))
    return li.reshape(y, (rows, *split[1::2], *tail))


@taken("BatchToSpaceND", refused=_KNOWN)
def batch_to_space(c: Call) -> Value:
    """Rows become places again, and places are cut off before and after."""
    x = c.value(0)
    blocks, edges = _blocks(c, x)
    m, places = len(blocks), dims.product(tuple(blocks))
    rows = dims.floordiv(x.shape[0], places) if isinstance(places, int) else 0
    if dims.mul(rows, places) != x.shape[0]:
        raise NodeRefusedError(f"{x.shape[0]} rows are not known to divide by {places}")
    order = [m, *(a for k in range(m) for a in (m + 1 + k, k)), *range(2 * m + 1, m + x.rank)]
    y = li.transpose(li.reshape(x, (*blocks, rows, *x.shape[1:])), order)
    wide = [dims.mul(d, b) for d, b in zip(x.shape[1:], blocks, strict=False)]
    y = li.reshape(y, (rows, *wide, *x.shape[1 + m :]))
    for axis, (before, after) in enumerate(edges, 1):
        end = dims.add(y.shape[axis], dims.mul(after, -1))
        if (before, after) != (0, 0):
            y = sliced(y, axis, before, end, 1)
    return y

"""Where the axis of time goes: ops that move elements, sum over axes, and multiply matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.types import Shape
from lstm_ir.ops.primitive.linear import free_axes
from lstm_ir.ops.primitive.shape import quotient
from lstm_ir.streaming.facts import Fact, Latest, Timed
from lstm_ir.streaming.rule import CutError, RuleNode, rule


@rule("transpose")
def transpose(s: RuleNode) -> Sequence[Fact]:
    """To the place that the permutation gives it."""
    f = s.only()
    return [f.at(s.node.attrs["permutation"].index(f.axis))]


@rule("broadcast_in_dim")
def broadcast(s: RuleNode) -> Sequence[Fact]:
    """To the place that it is given."""
    f = s.only()
    return [f.at(s.node.attrs["broadcast_dimensions"][f.axis])]


@rule("reverse")
def reverse(s: RuleNode) -> Sequence[Fact]:
    """Other axes may be reversed."""
    f = s.only()
    if f.axis in s.node.attrs["dimensions"]:
        s.refuse("reverses the order of the steps")
    return [f]


@rule("reshape")
def reshape(s: RuleNode) -> Sequence[Fact]:
    """The axis of the result that holds the rows, with what stands outside and inside of them."""
    f, before, after = s.only(), s.node.inputs[0].shape, s.node.types[0].shape
    rows = quotient((before[f.axis],), (f.outer, f.inner))
    ahead = dims.mul(dims.product(before[: f.axis]), f.outer)
    behind = dims.mul(dims.product(before[f.axis + 1 :]), f.inner)
    found = [a for a, d in enumerate(after) if s.whole.timed(d)]
    for axis in found:
        outer, inner = quotient((ahead,), after[:axis]), quotient((behind,), after[axis + 1 :])
        if rows is None or outer is None or inner is None:
            continue
        if dims.product((outer, rows, inner)) == after[axis]:
            return [replace(f, axis=axis, outer=outer, inner=inner)]
    raise CutError(f"the steps of {s.node.inputs[0].type} lie on no one axis of {s.node.types[0]}")


@rule("reduce_sum", "reduce_max", "reduce_min", "reduce_mean")
def reduced(s: RuleNode) -> Sequence[Fact]:
    """Over other axes than time."""
    f, over = s.only(), s.node.attrs["dimensions"]
    if f.axis in over:
        raise CutError(f"{s.node.op.name} over all steps")
    return [f.at(f.axis - sum(a < f.axis for a in over))]


@rule("argmax")
def argmax(s: RuleNode) -> Sequence[Fact]:
    """Likewise, over one axis."""
    f, over = s.only(), s.node.attrs["axis"]
    if f.axis == over:
        raise CutError("argmax over all steps")
    return [f.at(f.axis - (over < f.axis))]


@rule("softmax", "log_softmax")
def along(s: RuleNode) -> Sequence[Fact]:
    """Along another axis than time."""
    f = s.only()
    if f.axis == s.node.attrs["axis"]:
        s.refuse(f"{s.node.op.name} over all steps")
    return [f]


@rule("gather")
def gather(s: RuleNode) -> Sequence[Fact]:
    """Rows of a table by the numbers of each step; or picked on another axis than time."""
    (x, indices), at = s.facts, s.node.attrs["axis"]
    if any(s.whole.timed(d) for f, v in zip(s.facts, s.node.inputs, strict=True) for d in _others(f, v.shape)):
        raise CutError("picks from a value that has a row for every step of a call")
    if isinstance(x, Timed) and not isinstance(indices, (Latest, Timed)):
        if x.axis == at:
            raise CutError("picks steps by their places in the call")
        return [x if x.axis < at else x.at(x.axis - 1 + s.node.inputs[1].rank)]
    if isinstance(indices, Timed) and not isinstance(x, (Latest, Timed)):
        return [indices.at(indices.axis + at)]
    raise CutError("both the table and the indices change over time")


def _others(f: Fact, shape: Shape) -> list[Dim]:
    """Sizes of the axes that are not time."""
    return [d for axis, d in enumerate(shape) if not isinstance(f, Timed) or axis != f.axis]


@rule("dot_general")
def dot(s: RuleNode) -> Sequence[Fact]:
    """Time is a batching axis of both, or a free one of one."""
    lhs, rhs = s.facts
    a = s.node.attrs
    lb, rb = a["lhs_batching_dimensions"], a["rhs_batching_dimensions"]
    lc, rc = a["lhs_contracting_dimensions"], a["rhs_contracting_dimensions"]
    left, right = (v.rank for v in s.node.inputs)
    sides: list[Timed] = []
    for f, batch, summed, rank, skip in ((lhs, lb, lc, left, 0), (rhs, rb, rc, right, left - len(lb) - len(lc))):
        if isinstance(f, Latest):
            raise CutError("reads at every step what only the last step gives")
        if not isinstance(f, Timed):
            continue
        if f.axis in summed:
            raise CutError("a product that sums over all steps")
        free = free_axes(rank, batch, summed)
        sides.append(f.at(batch.index(f.axis) if f.axis in batch else len(batch) + skip + free.index(f.axis)))
    made = s.merged(sides)
    if made.axis < len(lb):
        s.even([(f, batch[made.axis]) for f, batch in ((lhs, lb), (rhs, rb))])
    return [made]

"""Ops that rearrange elements: by shape, by order, by slices."""

from __future__ import annotations

from collections.abc import Sequence

from lstm_ir import ops as li
from lstm_ir.importers import sizes as s
from lstm_ir.importers.counted import counted, distance, pieces
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.slices import TO_THE_END, sliced
from lstm_ir.importers.table import ALL
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.broadcast import common_shape
from lstm_ir.ops.primitive.rearrange import split_sizes


@taken("Reshape", 5, 13, 14, 19, 21, 23, 24, 25, moves=(0,), refused="a shape of which two sizes are open values")
def reshape(c: Call) -> Value:
    """0 keeps a size, -1 is the size that is left, and so is one that only a call knows."""
    x, shape = c.value(0), c.axis_sizes(1, "the shape", left=True)
    zero = c.opset >= 14 and c.flag("allowzero")
    to: list[Dim] = []
    for axis, d in enumerate(shape):
        if d == 0 and not zero:
            if axis >= x.rank:
                raise NodeRefusedError(f"the shape keeps axis {axis} of an operand of rank {x.rank}")
            d = x.shape[axis]
        to.append(d)
    return li.reshape(x, tuple(to))


@taken("Flatten", 9, 11, 13, 21, 23, 24, 25, moves=(0,))
def flatten(c: Call) -> Value:
    """Two axes: those before `axis`, and the others."""
    x, axis = c.value(0), c.integer("axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise NodeRefusedError(f"axis {axis} is outside {-x.rank}..{x.rank}")
    return flattened(x, axis % x.rank if axis < 0 else axis)


def flattened(x: Value, axis: int) -> Value:
    """x [product of the axes before `axis`, product of the others]."""
    return li.reshape(x, (dims.product(x.shape[:axis]), dims.product(x.shape[axis:])))


@taken("Transpose", 1, 13, 21, 23, 24, 25, moves=(0,))
def transpose(c: Call) -> Value:
    """Axes in another order, reversed by default."""
    x = c.value(0)
    order = c.integers("perm", tuple(range(x.rank))[::-1])
    if sorted(order) != list(range(x.rank)):
        raise NodeRefusedError(f"perm {order} does not order {x.rank} axes")
    return li.transpose(x, order)


@taken("Squeeze", 1, 11, 13, 21, 23, 24, 25, moves=(0,))
def squeeze(c: Call) -> Value:
    """Without axes of size 1."""
    x = c.value(0)
    axes = c.axes(1, x.rank)
    if axes is not None and not axes:
        raise NodeRefusedError("axes is an empty list, which some take for no axis and some for all of size 1")
    if axes is None and any(isinstance(d, dims.Expr) for d in x.shape):
        raise NodeRefusedError(f"without axes, {x.type} has a size that may be 1 or not")
    for a in axes or ():
        c.agree(f"axis {a}, which is squeezed", x.shape[a], 1)
    return li.squeeze(x, axes)


@taken("Unsqueeze", 1, 11, 13, 21, 23, 24, 25, moves=(0,))
def unsqueeze(c: Call) -> Value:
    """With new axes of size 1."""
    x = c.value(0)
    given = c.integers("axes") if c.has_attribute("axes") else c.numbers(1, "axes")
    axes = [c.axis_of(a, x.rank + len(given)) for a in given]
    if len(set(axes)) != len(axes):
        raise NodeRefusedError(f"axes {given} name one axis twice")
    return li.expand_dims(x, axes) if axes else x


@taken("Concat", 4, 11, 13, moves=(ALL,))
def concat(c: Call) -> Value:
    """Operands one after another along `axis`."""
    xs = c.values()
    if not xs:
        raise NodeRefusedError("it has no operands")
    axis = c.axis(xs[0].rank)
    first = xs[0].shape
    for a in range(len(first)):
        if a != axis:
            c.agree_all(f"axis {a} of the operands", [(first[a], x.shape[a]) for x in xs[1:] if a < x.rank])
    return li.concat(xs, axis)


@taken("Split", 2, 11, 13, 18, moves=(0,))
def split(c: Call) -> list[Value]:
    """Parts along `axis`: given sizes, or equal ones, the last of which may be smaller."""
    x = c.value(0)
    axis = c.axis(x.rank, 0)
    size = x.shape[axis]
    if c.has_attribute("split") or c.has(1):
        parts: Sequence[Dim] = c.integers("split") if c.has_attribute("split") else c.dims(1, "split")
        c.agree("the sum of the parts", size, dims.total(parts))
    else:
        parts = _equal_parts(c, size)
    return split_sizes(x, axis, parts)


def _equal_parts(c: Call, size: Dim) -> Sequence[Dim]:
    count = len(c.outputs)
    if c.has_attribute("num_outputs") and c.integer("num_outputs") != count:
        raise NodeRefusedError(f"num_outputs is {c.integer('num_outputs')}, and there are {count} results")
    if isinstance(size, int):
        each = -(-size // count)
        last = size - each * (count - 1)
        if last < 0 or (last != each and not c.has_attribute("num_outputs")):
            raise NodeRefusedError(f"{size} does not divide into {count} parts")
        return [each] * (count - 1) + [last]
    each_ = dims.floordiv(size, count)
    if dims.mul(each_, count) != size:
        raise NodeRefusedError(f"{size} is not known to divide into {count} parts")
    return [each_] * count


@taken("Slice", 1, 10, 11, 13, moves=(0,), refused="bounds that only a call knows, apart from sizes")
def slice_(c: Call) -> Value:
    """Ranges along axes; a bound outside the axis is moved to its end.

    Where a size has a name, a bound that may be outside is refused at the call.
    """
    x = c.value(0)
    if c.opset < 10:
        starts: list[Dim] = list(c.integers("starts"))
        ends: list[Dim] = list(c.integers("ends"))
        axes = c.integers("axes", range(len(starts)))
        steps = [1] * len(starts)
    else:
        if c.elements(1) is None or c.elements(2) is None:
            return _at_a_place(c, x)
        starts, ends = c.dims(1, "starts"), c.dims(2, "ends")
        axes = c.numbers(3, "axes") if c.has(3) else list(range(len(starts)))
        steps = c.numbers(4, "steps") if c.has(4) else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise NodeRefusedError(f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        a = c.axis_of(axis, x.rank)
        x = sliced(x, a, _first(start, x.shape[a], step), end, step)
    return x


def _first(start: Dim, size: Dim, step: int) -> Dim:
    """The start of a range: one before the axis is the first place, backwards too, where NumPy finds none."""
    if step > 0 or not isinstance(start, int) or start >= 0:
        return start
    if isinstance(size, int):
        return max(start, -size)
    return 0 if start <= -TO_THE_END else start  # of an open size a place before the axis is refused at the call


def _at_a_place(c: Call, x: Value) -> Value:
    """Ranges that start where only a call knows, whose ends are a known number of places further: `x[t : t + 1]`.

    A range that is not inside the axis is refused at the call.
    """
    starts, ends = (pieces(c.value(i)) for i in (1, 2))
    if starts is None or ends is None or len(starts) != len(ends):
        raise NodeRefusedError("bounds depend on values that only a call knows")
    axes = c.numbers(3, "axes") if c.has(3) else list(range(len(starts)))
    if len(axes) != len(starts) or (c.has(4) and set(c.numbers(4, "steps")) != {1}):
        raise NodeRefusedError("bounds depend on values that only a call knows, and a step is not 1")
    for start, end, a in zip(starts, ends, axes, strict=True):
        first, axis = counted(start), c.axis_of(a, x.rank)
        count = distance(first, counted(end))
        if count is None:
            raise NodeRefusedError("how many places a range has depends on values that only a call knows")
        if first.of is None:
            x = sliced(x, axis, first.more, dims.add(first.more, count), 1)
            continue
        place = li.in_range(li.convert(li.reshape(start, ()), DType.i64), 0, s.minus(x.shape[axis], count))
        if count == 1:
            x = li.expand_dims(li.take(x, place, axis), axis)
        else:
            x = li.take(x, place + li.iota((count,), 0, DType.i64), axis)
    return x


@taken("Expand", 8, 13, moves=(0,))
def expand(c: Call) -> Value:
    """Repeated to the shape that both broadcast to."""
    x = c.value(0)
    shape = tuple(c.axis_sizes(1, "the shape"))
    return li.broadcast_to(x, common_shape("broadcast_to", [x.shape, shape]))


@taken("Tile", 6, 13, moves=(0,))
def tile(c: Call) -> Value:
    """Repeated whole, a number of times along each axis."""
    x, repeats = c.value(0), c.dims(1, "repeats")
    if len(repeats) != x.rank:
        raise NodeRefusedError(f"{len(repeats)} repeats for {x.rank} axes")
    return li.tile(x, repeats)


def _blocks(c: Call, x: Value) -> int:
    size = c.integer("blocksize")
    if x.rank != 4 or size < 1:
        raise NodeRefusedError(f"the operand is {x.type}, blocksize {size}")
    return size


@taken("DepthToSpace", 1, 11, 13, 28)
def depth_to_space(c: Call) -> Value:
    """Channels become blocks of the last two axes: the place in a block first (DCR), or the channel (CRD)."""
    x = c.value(0)
    k, mode = _blocks(c, x), c.word("mode", "DCR") if c.opset >= 11 else "DCR"
    if mode not in ("DCR", "CRD"):
        raise NodeRefusedError(f"mode is {mode!r}, not DCR or CRD")
    channels = x.shape[1]
    if not isinstance(channels, int) or channels % (k * k):
        raise NodeRefusedError(f"the operand is {x.type}, blocksize {k}")
    return li.depth_to_space(x, k, mode)


@taken("SpaceToDepth", 1, 13, 28)
def space_to_depth(c: Call) -> Value:
    """Blocks of the last two axes become channels, the place in a block first."""
    x = c.value(0)
    k = _blocks(c, x)
    low, wide = dims.floordiv(x.shape[2], k), dims.floordiv(x.shape[3], k)
    if (dims.mul(low, k), dims.mul(wide, k)) != x.shape[2:]:
        raise NodeRefusedError(f"{x.shape[2]} and {x.shape[3]} are not known to divide into blocks of {k}")
    return li.space_to_depth(x, k)

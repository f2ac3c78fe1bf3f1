"""Ops that rearrange elements: by shape, by order, by slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from lstm_ir import ops as li
from lstm_ir.importers.counted import counted, distance, pieces
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.sizes import SizeArray, folded
from lstm_ir.importers.slices import TO_THE_END, sliced
from lstm_ir.importers.table import ALL
from lstm_ir.importers.tensorflow.call import Call
from lstm_ir.importers.tensorflow.table import taken
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ops.primitive.rearrange import split_sizes

_OPEN = "a shape that only a call knows, apart from sizes"


@taken("Reshape", moves=(0,), refused=_OPEN)
def reshape(c: Call) -> Value:
    """-1 is the size that is left."""
    return li.reshape(c.value(0), tuple(c.axis_sizes(1, "the shape")))


@taken("Transpose", moves=(0,))
def transpose(c: Call) -> Value:
    """Axes in another order."""
    x, order = c.value(0), c.numbers(1, "the order")
    order = [c.axis_of(a, x.rank) for a in order]
    if sorted(order) != list(range(x.rank)):
        raise NodeRefusedError(f"{order} does not order {x.rank} axes")
    return li.transpose(x, order)


@taken("Squeeze", moves=(0,))
def squeeze(c: Call) -> Value:
    """Without axes of size 1."""
    x = c.value(0)
    axes = tuple(c.axis_of(a, x.rank) for a in c.integers("squeeze_dims", ()))
    if not axes and any(isinstance(d, dims.Expr) for d in x.shape):
        raise NodeRefusedError(f"without axes, {x.type} has a size that may be 1 or not")
    for a in axes:
        c.agree(f"axis {a}, which is squeezed", x.shape[a], 1)
    return li.squeeze(x, axes or None)


@taken("ExpandDims", moves=(0,))
def expand_dims(c: Call) -> Value:
    """With a new axis of size 1."""
    x = c.value(0)
    return li.expand_dims(x, (c.axis(1, x.rank + 1),))


def _joined_sizes(c: Call, places: Sequence[int], axis: int) -> SizeArray | Value | None:
    """The operands at these places one after another, where one of them is sizes and all are known."""
    found = [c.raw(i) for i in places]
    arrays = [c.elements_of(v, clamped=True) for v in found]
    known = [a for a in arrays if a is not None]
    if not any(isinstance(v, SizeArray) for v in found) or len(known) < len(arrays) or not known[0].ndim:
        return None
    try:
        return folded(np.concatenate(known, c.axis(axis, known[0].ndim)), found[0].dtype)
    except ValueError:  # their other axes differ: the op on tensors says where
        return None


def _joined(c: Call, xs: Sequence[Value], axis: int) -> Value:
    for x in xs[1:]:
        for a in range(min(x.rank, xs[0].rank)):
            if a != axis:
                c.agree(f"axis {a} of the operands", xs[0].shape[a], x.shape[a])
    return li.concat(list(xs), axis)


@taken("ConcatV2")
def concat(c: Call) -> SizeArray | Value:
    """Operands one after another along the axis that the last operand names."""
    last = len(c.inputs) - 1
    sizes = _joined_sizes(c, range(last), last)
    if sizes is not None:
        return sizes
    xs = [c.value(i) for i in range(last)]
    if not xs:
        raise NodeRefusedError("it has no operands")
    return _joined(c, xs, c.axis(last, xs[0].rank))


@taken("Concat")
def concat_old(c: Call) -> SizeArray | Value:
    """Operands one after another along the axis that the first operand names."""
    sizes = _joined_sizes(c, range(1, len(c.inputs)), 0)
    if sizes is not None:
        return sizes
    xs = [c.value(i) for i in range(1, len(c.inputs))]
    if not xs:
        raise NodeRefusedError("it has no operands")
    return _joined(c, xs, c.axis(0, xs[0].rank))


@taken("Pack", moves=(ALL,))
def pack(c: Call) -> Value:
    """Operands along a new axis."""
    xs = c.values()
    if not xs:
        raise NodeRefusedError("it has no operands")
    axis = c.axis_of(c.integer("axis", 0), xs[0].rank + 1)
    return _joined(c, [li.expand_dims(x, (axis,)) for x in xs], axis)


@taken("Unpack", moves=(0,))
def unpack(c: Call) -> list[Value]:
    """The parts along an axis, without it."""
    x = c.value(0)
    axis, count = c.axis_of(c.integer("axis", 0), x.rank), c.integer("num")
    c.agree("the number of parts", x.shape[axis], count)
    return [li.squeeze(v, (axis,)) for v in split_sizes(x, axis, [1] * count)]


@taken("Split", moves=(1,))
def split(c: Call) -> list[Value]:
    """Equal parts along an axis."""
    x = c.value(1)
    axis, count = c.axis(0, x.rank), c.integer("num_split")
    each = dims.floordiv(x.shape[axis], count) if count > 0 else 0
    if dims.mul(each, count) != x.shape[axis]:
        raise NodeRefusedError(f"{x.shape[axis]} is not known to divide into {count} parts")
    return split_sizes(x, axis, [each] * count)


@taken("SplitV", moves=(0,))
def split_v(c: Call) -> list[Value]:
    """Parts of given sizes along an axis; -1 is what is left."""
    x, parts = c.value(0), c.dims(1, "the sizes")
    axis, count = c.axis(2, x.rank), c.integer("num_split")
    if len(parts) != count:
        raise NodeRefusedError(f"{len(parts)} sizes for {count} parts")
    rest = x.shape[axis]
    for d in parts:
        rest = dims.add(rest, dims.mul(d, -1)) if d != -1 else rest
    parts = [rest if d == -1 else d for d in parts]
    c.agree("the sum of the parts", x.shape[axis], dims.total(parts))
    return split_sizes(x, axis, parts)


@taken("Slice", moves=(0,), refused="bounds that only a call knows, apart from sizes")
def slice_(c: Call) -> Value:
    """So many places from a start along each axis; -1 is up to the end."""
    x, starts, counts = c.value(0), c.dims(1, "the start"), c.dims(2, "the sizes")
    if not len(starts) == len(counts) == x.rank:
        raise NodeRefusedError(f"{len(starts)} starts and {len(counts)} sizes for {x.rank} axes")
    for axis, (start, count) in enumerate(zip(starts, counts, strict=True)):
        end = x.shape[axis] if count == -1 else dims.add(start, count)
        if isinstance(end, int) and isinstance(x.shape[axis], int) and isinstance(start, int):
            low, high = start, x.shape[axis]
            if not 0 <= low <= end <= (high if isinstance(high, int) else end):
                raise NodeRefusedError(f"places {low} to {end} are outside axis {axis} of {x.type}")
        if (start, end) != (0, x.shape[axis]):
            x = sliced(x, axis, start, end, 1)
    return x


@taken("StridedSlice", moves=(0,), refused="bounds that only a call knows, apart from sizes and a single place")
def strided_slice(c: Call) -> Value:
    """NumPy's x[...]: masks say which bounds are open, which axes are new, and which are left out."""
    x = c.value(0)
    masks = {n: c.integer(f"{n}_mask", 0) for n in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    strides = c.numbers(3, "the steps")
    count = len(strides)
    starts, ends = _bounds(c, 1, count), _bounds(c, 2, count)
    if masks["ellipsis"] & (masks["ellipsis"] - 1):
        raise NodeRefusedError("two parts are ellipses")
    axis, new, gone = 0, [], []
    result = 0  # axes of the result, before those that are left out are taken away
    for k in range(count):
        bit = 1 << k
        if masks["ellipsis"] & bit:
            behind = sum(1 for j in range(k + 1, count) if not masks["new_axis"] & 1 << j)
            skipped = x.rank - axis - behind
            if skipped < 0:
                raise NodeRefusedError(f"{count} parts for {x.type}")
            axis, result = axis + skipped, result + skipped
        elif masks["new_axis"] & bit:
            new.append(result)
            result += 1
        elif axis >= x.rank:
            raise NodeRefusedError(f"{count} parts for {x.type}")
        else:
            shrink = bool(masks["shrink_axis"] & bit)
            start = None if masks["begin"] & bit and not shrink else starts[k]
            end = None if masks["end"] & bit else ends[k]
            x = _part(x, axis, start, end, strides[k], shrink)
            if shrink:
                gone.append(result)
            axis, result = axis + 1, result + 1
    if new:
        x = li.expand_dims(x, tuple(new))
    return li.squeeze(x, tuple(gone)) if gone else x


Bound: TypeAlias = "Dim | Value"


def _bounds(c: Call, i: int, count: int) -> list[Bound]:
    """Bounds as sizes where they are known, else each as a tensor of its own."""
    found = c.elements(i)
    if found is not None:
        if found.shape != (count,):
            raise NodeRefusedError(f"{found.size} bounds for {count} steps")
        return list(found)
    parts = pieces(c.value(i))
    if parts is None or len(parts) != count:
        raise NodeRefusedError("bounds depend on values that only a call knows")
    out: list[Bound] = []
    for p in parts:
        known = c.elements_of(p)
        out.append(li.reshape(p, ()) if known is None else known.reshape(-1)[0])
    return out


def _part(x: Value, axis: int, start: Bound | None, end: Bound | None, step: int, shrink: bool) -> Value:
    if shrink:
        return _place(x, axis, start)
    if isinstance(start, Value) or isinstance(end, Value):
        return _window(x, axis, start, end, step)
    first: Dim = (0 if step > 0 else TO_THE_END) if start is None else start
    last: Dim = (TO_THE_END if step > 0 else -TO_THE_END) if end is None else end
    return sliced(x, axis, first, last, step)


def _place(x: Value, axis: int, at: Bound | None) -> Value:
    """One row, the axis kept with size 1."""
    size = x.shape[axis]
    if isinstance(at, Value):
        place = li.in_range(at, 0, dims.add(size, -1))
        return li.expand_dims(li.take(x, place, axis), (axis,))
    if at is None:
        at = 0
    if isinstance(at, int) and at < 0:
        at = dims.add(size, at)
    if isinstance(at, int) and isinstance(size, int) and not 0 <= at < size:
        raise NodeRefusedError(f"place {at} is outside axis {axis} of {x.type}")
    return li.slice(
        x, [at if a == axis else 0 for a in range(x.rank)],
        [dims.add(at, 1) if a == axis else d for a, d in enumerate(x.shape)],
    )  # fmt: skip


def _window(x: Value, axis: int, start: Bound | None, end: Bound | None, step: int) -> Value:
    """So many rows from a place that only a call knows: `x[t : t + 1]`; one outside is refused at the call."""
    if start is None or end is None or step != 1:
        raise NodeRefusedError("how many places a range has depends on values that only a call knows")
    a, b = (counted(v if isinstance(v, Value) else li.size(v)) for v in (start, end))
    count = distance(a, b)
    if count is None or not isinstance(start, Value):
        raise NodeRefusedError("how many places a range has depends on values that only a call knows")
    place = li.in_range(start, 0, dims.add(x.shape[axis], dims.mul(count, -1)))
    return li.take(x, place + li.iota((count,), 0, place.dtype), axis)


@taken("BroadcastTo", moves=(0,), refused=_OPEN)
def broadcast_to(c: Call) -> Value:
    """Repeated to a shape."""
    return li.broadcast_to(c.value(0), tuple(c.axis_sizes(1, "the shape")))


@taken("Tile", moves=(0,), refused="numbers of repeats that only a call knows")
def tile(c: Call) -> Value:
    """Repeated whole, a number of times along each axis."""
    x, repeats = c.value(0), c.dims(1, "repeats")
    if len(repeats) != x.rank:
        raise NodeRefusedError(f"{len(repeats)} repeats for {x.rank} axes")
    return li.tile(x, repeats)


@taken("ReverseV2", moves=(0,))
def reverse(c: Call) -> Value:
    """Elements in opposite order along some axes."""
    x = c.value(0)
    axes = c.axes(1, x.rank)
    return li.reverse(x, axes) if axes else x


@taken("Reverse")
def reverse_flags(c: Call) -> Value:
    """Elements in opposite order along the axes whose flag is set."""
    x, flags = c.value(0), c.known(1)
    if flags is None or flags.shape != (x.rank,):
        raise NodeRefusedError("which axes are reversed is not known at import")
    axes = tuple(a for a in range(x.rank) if flags[a])
    return li.reverse(x, axes) if axes else x


def _pads(c: Call, x: Value) -> tuple[list[Dim], list[Dim]]:
    found = c.elements(1)
    if found is None or found.shape != (x.rank, 2):
        raise NodeRefusedError("the numbers of places before and after are not known at import")
    return [d for d, _ in found], [d for _, d in found]


@taken("Pad")
def pad(c: Call) -> Value:
    """Zeros before and after."""
    x = c.value(0)
    return li.pad(x, *_pads(c, x), value=False if x.dtype.bits == 1 else 0)


@taken("PadV2")
def pad_v2(c: Call) -> Value:
    """A number before and after."""
    x = c.value(0)
    return li.pad(x, *_pads(c, x), value=li.reshape(c.value(2), ()))


@taken("MirrorPad", refused="mode SYMMETRIC")
def mirror_pad(c: Call) -> Value:
    """Elements before and after as a mirror shows them, without the edge."""
    x, mode = c.value(0), c.word("mode")
    if mode != "REFLECT":
        raise NodeRefusedError(f"mode {mode} is not taken")
    return li.pad(x, *_pads(c, x), mode="reflect")

"""Ops that pick and place elements by integers, and that order them."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.onnx.call import Call, RefusedError
from lstm_ir.importers.onnx.table import taken
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.window import slice_axis


def size_value(d: Dim, dtype: DType) -> Value:
    """A size as an integer of the graph."""
    return li.constant(d, dtype) if isinstance(d, int) else li.convert(li.size(d), dtype)


def from_start(indices: Value, size: Dim) -> Value:
    """Indices counted from either end, counted from the start."""
    if not indices.dtype.is_int:
        raise RefusedError(f"indices are {indices.dtype}, not integers")
    return li.select(li.less(indices, 0), indices + size_value(size, indices.dtype), indices)


@taken("Gather", 1, 11, 13, moves=(0,))
def gather(c: Call) -> Value:
    """Rows along `axis`; an index outside is refused at the call."""
    x = c.value(0)
    axis = c.axis(x.rank, 0)
    known = c.elements(1)
    size = x.shape[axis]
    if known is not None and known.ndim == 0 and isinstance(known.item(), int):
        at: Dim = known.item() if known.item() >= 0 else dims.add(size, known.item())
        return li.squeeze(slice_axis(x, axis, at, dims.add(at, 1)), axis)
    indices = c.value(1)
    if known is not None and all(isinstance(d, int) and d >= 0 for d in known.flat):
        return li.take(x, indices, axis)
    return li.take(x, from_start(indices, size), axis)


@taken("GatherElements", 11, 13)
def gather_elements(c: Call) -> Value:
    """One element for each index, which counts along `axis`."""
    x, indices = c.value(0), c.value(1)
    axis = c.axis(x.rank, 0)
    places = _places(x, indices, axis)
    return li.take(li.reshape(x, (dims.product(x.shape),)), places)


def _places(x: Value, indices: Value, axis: int) -> Value:
    """Where the elements that `indices` name lie in x read row by row."""
    if indices.rank != x.rank:
        raise RefusedError(f"indices have {indices.rank} axes, the operand {x.rank}")
    along = from_start(li.convert(indices, DType.i64), x.shape[axis])
    along = li.in_range(along, 0, dims.add(x.shape[axis], -1))
    total = None
    for a in range(x.rank):
        step = dims.product(x.shape[a + 1 :])
        place = along if a == axis else li.iota(indices.shape, a, DType.i64)
        part = place * size_value(step, DType.i64)
        total = part if total is None else total + part
    if total is None:
        raise RefusedError("the operand is a scalar")
    return total


def _reduction(c: Call) -> str:
    how = c.word("reduction", "none") if c.opset >= 16 else "none"
    if how not in ("none", "add"):
        raise RefusedError(f"reduction {how!r} is not taken")
    return how


def _scattered(rows: Value, places: Value, updates: Value, how: str) -> Value:
    """Rows [N, ...] with those at `places` [M] replaced by, or increased by, `updates` [M, ...]."""
    if how == "add":
        return li.scatter_add(rows, places, updates)
    inside = DType.i8 if rows.dtype is DType.i1 else rows.dtype
    new = li.scatter_add(li.zeros(rows.shape, inside), places, li.convert(updates, inside))
    hits = li.scatter_add(li.zeros((rows.shape[0],), DType.i32), places, li.ones(places.shape, DType.i32))
    hit = li.broadcast_in_dim(li.greater(hits, 0), rows.shape, (0,))
    return li.select(hit, li.convert(new, rows.dtype), rows)


@taken("ScatterElements", 11, 13, 16, 18, refused="reductions other than none and add")
def scatter_elements(c: Call) -> Value:
    """Elements placed by indices along `axis`."""
    x, indices, updates = c.value(0), c.value(1), c.value(2)
    axis, how = c.axis(x.rank, 0), _reduction(c)
    places = li.reshape(_places(x, indices, axis), (-1,))
    flat = li.reshape(x, (dims.product(x.shape),))
    return li.reshape(_scattered(flat, places, li.reshape(updates, (-1,)), how), x.shape)


@taken("ScatterND", 11, 13, 16, 18, refused="reductions other than none and add")
def scatter_nd(c: Call) -> Value:
    """Slices placed by tuples of indices, the last axis of `indices`."""
    x, indices, updates = c.value(0), c.value(1), c.value(2)
    how = _reduction(c)
    depth = indices.shape[-1] if indices.rank else None
    if not isinstance(depth, int) or not 1 <= depth <= x.rank:
        raise RefusedError(f"indices are {indices.type}; the last axis is 1 to {x.rank}")
    places = None
    for a in range(depth):
        column = li.squeeze(slice_axis(li.convert(indices, DType.i64), indices.rank - 1, a, a + 1), indices.rank - 1)
        column = li.in_range(from_start(column, x.shape[a]), 0, dims.add(x.shape[a], -1))
        part = column * size_value(dims.product(x.shape[a + 1 : depth]), DType.i64)
        places = part if places is None else places + part
    assert places is not None
    count, rest = dims.product(indices.shape[:-1]), x.shape[depth:]
    rows = li.reshape(x, (dims.product(x.shape[:depth]), *rest))
    out = _scattered(rows, li.reshape(places, (count,)), li.reshape(updates, (count, *rest)), how)
    return li.reshape(out, x.shape)


@taken("GatherND", 11, 12, 13)
def gather_nd(c: Call) -> Value:
    """Slices picked by tuples of indices, the last axis of `indices`; the first `batch_dims` axes are those of both."""
    x, indices = c.value(0), c.value(1)
    batch = c.integer("batch_dims", 0) if c.opset >= 12 else 0
    depth = indices.shape[-1] if indices.rank else None
    if not isinstance(depth, int) or not 0 <= batch < indices.rank or not 1 <= depth <= x.rank - batch:
        raise RefusedError(f"indices are {indices.type}, the operand {x.type}, batch_dims {batch}")
    for a in range(batch):
        c.agree(f"axis {a} of both operands", x.shape[a], indices.shape[a])
    picked = indices.shape[:-1]
    columns = [li.iota(picked, a, DType.i64) for a in range(batch)]
    for k in range(depth):
        column = li.squeeze(slice_axis(li.convert(indices, DType.i64), indices.rank - 1, k, k + 1), indices.rank - 1)
        size = x.shape[batch + k]
        columns.append(li.in_range(from_start(column, size), 0, dims.add(size, -1)))
    known = batch + depth
    places = columns[0] * size_value(dims.product(x.shape[1:known]), DType.i64)
    for a in range(1, known):
        places = places + columns[a] * size_value(dims.product(x.shape[a + 1 : known]), DType.i64)
    return li.take(li.reshape(x, (dims.product(x.shape[:known]), *x.shape[known:])), places)


@taken("ReverseSequence", 10, 28)
def reverse_sequence(c: Call) -> Value:
    """The first steps of each row backwards, as many as its length; the steps after them stay."""
    x, lengths = c.value(0), c.value(1)
    time, batch = c.integer("time_axis", 0), c.integer("batch_axis", 1)
    if x.rank < 2 or {time, batch} != {0, 1}:
        raise RefusedError(f"the operand is {x.type}, time_axis {time}, batch_axis {batch}")
    c.agree("rows and lengths", x.shape[batch], lengths.shape[0] if lengths.rank == 1 else -1)
    y = rows_backwards(x if time == 0 else li.swapaxes(x, 0, 1), lengths)
    return y if time == 0 else li.swapaxes(y, 0, 1)


def rows_backwards(x: Value, lengths: Value) -> Value:
    """x [T,B,...] whose column b has its first lengths[b] steps backwards; the others stay."""
    T, B, *rest = x.shape
    n = li.broadcast_in_dim(li.in_range(li.convert(lengths, DType.i64), 0, T), (T, B), (1,))
    step = li.iota((T, B), 0, DType.i64)
    source = li.select(li.less(step, n), n - step - 1, step)
    places = source * size_value(B, DType.i64) + li.iota((T, B), 1, DType.i64)
    return li.take(li.reshape(x, (dims.mul(T, B), *rest)), places)


@taken("CumSum", 11, 14)
def cumsum(c: Call) -> Value:
    """Running sums along an axis."""
    x = c.value(0)
    axis = c.axis_of(c.number(1, "the axis"), x.rank)
    return li.cumsum(x, axis, reverse=c.flag("reverse"), exclusive=c.flag("exclusive"))


@taken("TopK", 1, 10, 11, 24, refused="elements that are not numbers (NaN has no order)")
def top_k(c: Call) -> tuple[Value, Value]:
    """The k largest or smallest along `axis`, in order; of equal ones the first come first.

    The place of an element is the number of those before it: every pair is compared.
    """
    x = c.value(0)
    axis = c.axis(x.rank, -1)
    k = c.dim(1, "k") if c.opset >= 10 else c.integer("k")
    largest = c.flag("largest", True) if c.opset >= 11 else True
    if c.opset >= 11:
        c.flag("sorted", True)  # sorted is right where no order is asked for
    moved = li.swapaxes(x, axis, -1)
    n = moved.shape[-1]
    shape = (*moved.shape[:-1], n, n)
    lead = tuple(range(moved.rank - 1))
    own = li.broadcast_in_dim(moved, shape, (*lead, moved.rank - 1))
    other = li.broadcast_in_dim(moved, shape, (*lead, moved.rank))
    before = li.greater(other, own) if largest else li.less(other, own)
    earlier = li.less(li.iota(shape, moved.rank, DType.i32), li.iota(shape, moved.rank - 1, DType.i32))
    before = li.logical_or(before, li.logical_and(li.equal(other, own), earlier))
    place = li.sum(li.convert(before, DType.i32), -1)  # [..., n]
    chosen = (*moved.shape[:-1], k, n)
    wanted = li.equal(
        li.broadcast_in_dim(place, chosen, (*lead, moved.rank)), li.iota(chosen, moved.rank - 1, DType.i32)
    )
    picked = li.sum(li.select(wanted, li.iota(chosen, moved.rank, DType.i32), li.zeros(chosen, DType.i32)), -1)
    values = li.take(li.reshape(moved, (dims.product(moved.shape),)), _places(moved, picked, moved.rank - 1))
    return li.swapaxes(values, axis, -1), li.convert(li.swapaxes(picked, axis, -1), DType.i64)

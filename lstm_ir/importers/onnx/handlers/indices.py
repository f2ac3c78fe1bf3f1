"""Ops that pick and place elements by integers, and that order them."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.along_axis import from_start
from lstm_ir.ops.primitive.window import slice_axis


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
    if not indices.dtype.is_int:
        raise NodeRefusedError(f"indices are {indices.dtype}, not integers")
    return li.take(x, from_start(indices, size), axis)


@taken("GatherElements", 11, 13)
def gather_elements(c: Call) -> Value:
    """One element for each index, which counts along `axis`."""
    x, indices = c.value(0), c.value(1)
    return li.gather_elements(x, indices, c.axis(x.rank, 0))


_COMBINED = {"mul": li.multiply, "max": li.maximum, "min": li.minimum}


def _reduction(c: Call) -> str:
    """How an update meets what stands there."""
    how = c.word("reduction", "none") if c.opset >= 16 else "none"
    if how not in ("none", "add", *_COMBINED):
        raise NodeRefusedError(f"reduction {how!r} is not taken")
    return how


@taken("ScatterElements", 11, 13, 16, 18, refused="reductions mul, max and min where indices have other columns than x")
def scatter_elements(c: Call) -> Value:
    """Elements placed by indices along `axis`; products, maxima and minima one row of updates after the other."""
    x, indices, updates = c.value(0), c.value(1), c.value(2)
    axis, how = c.axis(x.rank, 0), _reduction(c)
    if how not in _COMBINED:
        return li.put_along_axis(x, indices, updates, axis, add=how == "add")
    # Two updates of one element stand in one column of the axis, so in two rows.
    if indices.rank != x.rank or updates.shape != indices.shape:
        raise NodeRefusedError(f"the operand is {x.type}, indices are {indices.type}, updates {updates.type}")
    cut = x
    for k, (d, n) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if k != axis and d != n:
            if not isinstance(d, int) or not isinstance(n, int):
                raise NodeRefusedError(f"reduction {how} over indices {indices.type} of {x.type}")
            cut = slice_axis(cut, k, 0, n)
    rows = _moved(cut, axis, 0)

    def body(carry: tuple[Value, ...], row: tuple[Value, ...]) -> tuple[tuple[Value, ...], tuple[()]]:
        at, new = (li.expand_dims(v, 0) for v in row)
        old = li.take_along_axis(carry[0], at, 0)
        return (li.put_along_axis(carry[0], at, _COMBINED[how](old, new), 0),), ()

    at = from_start(_moved(indices, axis, 0), x.shape[axis])
    (done,), _ = li.scan(body, (rows,), (at, _moved(updates, axis, 0)))
    return _put_back(x, _moved(done, 0, axis))


def _moved(x: Value, start: int, end: int) -> Value:
    """x with one axis at another place."""
    order = [k for k in range(x.rank) if k != start]
    order.insert(end, start)
    return li.transpose(x, order)


def _put_back(x: Value, part: Value) -> Value:
    """x with `part` as its first elements along every axis."""
    for k in reversed(range(x.rank)):
        if part.shape[k] != x.shape[k]:
            whole = x
            for a in range(k):
                whole = slice_axis(whole, a, 0, part.shape[a])
            part = li.concat([part, slice_axis(whole, k, part.shape[k], x.shape[k])], k)
    return part


@taken("ScatterND", 11, 13, 16, 18)
def scatter_nd(c: Call) -> Value:
    """Slices placed by tuples of indices, the last axis of `indices`; products, maxima and minima one by one."""
    x, indices, updates, how = c.value(0), c.value(1), c.value(2), _reduction(c)
    if how not in _COMBINED:
        return li.scatter_nd(x, indices, updates, add=how == "add")
    deep = indices.shape[-1] if indices.rank else None
    if not isinstance(deep, int):
        raise NodeRefusedError(f"indices are {indices.type}")
    many = dims.product(indices.shape[:-1])
    flat = li.reshape(indices, (many, 1, deep)), li.reshape(updates, (many, 1, *x.shape[deep:]))

    def body(carry: tuple[Value, ...], row: tuple[Value, ...]) -> tuple[tuple[Value, ...], tuple[()]]:
        at, new = row
        return (li.scatter_nd(carry[0], at, _COMBINED[how](li.gather_nd(carry[0], at), new)),), ()

    (done,), _ = li.scan(body, (x,), flat)
    assert isinstance(done, Value)
    return done


@taken("GatherND", 11, 12, 13)
def gather_nd(c: Call) -> Value:
    """Slices picked by tuples of indices, the last axis of `indices`; the first `batch_dims` axes are those of both."""
    x, indices = c.value(0), c.value(1)
    batch = c.integer("batch_dims", 0) if c.opset >= 12 else 0
    for a in range(min(batch, x.rank, indices.rank)):
        c.agree(f"axis {a} of both operands", x.shape[a], indices.shape[a])
    return li.gather_nd(x, indices, batch)


@taken("ReverseSequence", 10, 28)
def reverse_sequence(c: Call) -> Value:
    """The first steps of each row backwards, as many as its length; the steps after them stay."""
    x, lengths = c.value(0), c.value(1)
    time, batch = c.integer("time_axis", 0), c.integer("batch_axis", 1)
    if x.rank < 2 or {time, batch} != {0, 1}:
        raise NodeRefusedError(f"the operand is {x.type}, time_axis {time}, batch_axis {batch}")
    c.agree("rows and lengths", x.shape[batch], lengths.shape[0] if lengths.rank == 1 else -1)
    y = li.reverse_sequence(x if time == 0 else li.swapaxes(x, 0, 1), lengths)
    return y if time == 0 else li.swapaxes(y, 0, 1)


@taken("CumSum", 11, 14)
def cumsum(c: Call) -> Value:
    """Running sums along an axis."""
    x = c.value(0)
    axis = c.axis_of(c.number(1, "the axis"), x.rank)
    return li.cumsum(x, axis, reverse=c.flag("reverse"), exclusive=c.flag("exclusive"))


@taken("TopK", 1, 10, 11, 24)
def top_k(c: Call) -> tuple[Value, Value]:
    """The k largest or smallest along `axis`, in order; of equal ones the first come first, NaN is the largest."""
    x = c.value(0)
    axis = c.axis(x.rank, -1)
    k = c.dim(1, "k") if c.opset >= 10 else c.integer("k")
    largest = c.flag("largest", True) if c.opset >= 11 else True
    if c.opset >= 11:
        c.flag("sorted", True)  # sorted is right where no order is asked for
    values, places = li.top_k(x, k, axis, largest)
    return values, li.convert(places, DType.i64)

"""Ops that pick and place elements by integers, and that order them."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.refusals import RefusedError
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
        raise RefusedError(f"indices are {indices.dtype}, not integers")
    return li.take(x, from_start(indices, size), axis)


@taken("GatherElements", 11, 13)
def gather_elements(c: Call) -> Value:
    """One element for each index, which counts along `axis`."""
    x, indices = c.value(0), c.value(1)
    return li.gather_elements(x, indices, c.axis(x.rank, 0))


def _adds(c: Call) -> bool:
    """Whether updates are added, not put."""
    how = c.word("reduction", "none") if c.opset >= 16 else "none"
    if how not in ("none", "add"):
        raise RefusedError(f"reduction {how!r} is not taken")
    return how == "add"


@taken("ScatterElements", 11, 13, 16, 18, refused="reductions other than none and add")
def scatter_elements(c: Call) -> Value:
    """Elements placed by indices along `axis`."""
    x, indices, updates = c.value(0), c.value(1), c.value(2)
    return li.put_along_axis(x, indices, updates, c.axis(x.rank, 0), add=_adds(c))


@taken("ScatterND", 11, 13, 16, 18, refused="reductions other than none and add")
def scatter_nd(c: Call) -> Value:
    """Slices placed by tuples of indices, the last axis of `indices`."""
    return li.scatter_nd(c.value(0), c.value(1), c.value(2), add=_adds(c))


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
        raise RefusedError(f"the operand is {x.type}, time_axis {time}, batch_axis {batch}")
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

"""Ops that pick elements by integers, and that order them."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.tensorflow.call import Call
from lstm_ir.importers.tensorflow.table import taken
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.window import slice_axis


def _gathered(c: Call, axis: int) -> Value:
    """Rows along an axis; an index outside is refused at the call, as TensorFlow does on a CPU."""
    x, known = c.value(0), c.elements(1)
    if known is not None and known.ndim == 0 and isinstance(known.item(), int):
        at: Dim = known.item()
        size = x.shape[axis]
        if isinstance(at, int) and (at < 0 or (isinstance(size, int) and at >= size)):
            raise NodeRefusedError(f"place {at} is outside axis {axis} of {x.type}")
        return li.squeeze(slice_axis(x, axis, at, dims.add(at, 1)), axis)
    return li.take(x, c.value(1), axis)


@taken("Gather", "ResourceGather", moves=(0,))
def gather(c: Call) -> Value:
    """Rows along the first axis."""
    if c.has_attribute("batch_dims") and c.integer("batch_dims"):
        raise NodeRefusedError(f"batch_dims is {c.integer('batch_dims')}, not 0")
    return _gathered(c, 0)


@taken("GatherV2", moves=(0,), refused="batch_dims")
def gather_v2(c: Call) -> Value:
    """Rows along an axis."""
    if c.integer("batch_dims", 0):
        raise NodeRefusedError(f"batch_dims is {c.integer('batch_dims')}, not 0")
    return _gathered(c, c.axis(2, c.value(0).rank))


@taken("GatherNd")
def gather_nd(c: Call) -> Value:
    """Slices picked by tuples of indices, the last axis of the second operand."""
    return li.gather_nd(c.value(0), c.value(1))


@taken("OneHot", refused="a depth that only a call knows, apart from sizes")
def one_hot(c: Call) -> Value:
    """A new axis of `depth` places: one of two values where the index stands, the other elsewhere."""
    indices, on, off = c.value(0), c.value(2), c.value(3)
    axis = c.axis_of(c.integer("axis", -1), indices.rank + 1)
    hot = li.one_hot(indices, c.dim(1, "the depth"), axis=axis, dtype=DType.i1)
    return li.where(hot, on, off)


@taken("ReverseSequence", refused="axes other than 0 and 1")
def reverse_sequence(c: Call) -> Value:
    """The first steps of each row backwards, as many as its length; the steps after them stay."""
    x, lengths = c.value(0), c.value(1)
    time, batch = c.integer("seq_dim"), c.integer("batch_dim", 0)
    if x.rank < 2 or {time, batch} != {0, 1}:
        raise NodeRefusedError(f"the operand is {x.type}, seq_dim {time}, batch_dim {batch}")
    c.agree("rows and lengths", x.shape[batch], lengths.shape[0] if lengths.rank == 1 else -1)
    y = li.reverse_sequence(x if time == 0 else li.swapaxes(x, 0, 1), li.convert(lengths, DType.i32))
    return y if time == 0 else li.swapaxes(y, 0, 1)


@taken("Cumsum")
def cumsum(c: Call) -> Value:
    """Running sums along an axis."""
    x = c.value(0)
    return li.cumsum(x, c.axis(1, x.rank), reverse=c.flag("reverse"), exclusive=c.flag("exclusive"))


@taken("TopKV2", results="values indices")
def top_k(c: Call) -> list[Value]:
    """The k largest along the last axis, in order; of equal ones the first come first."""
    x, k = c.value(0), c.dim(1, "k")
    c.flag("sorted", True)  # sorted is right where no order is asked for
    kind = c.dtype("index_type") if c.has_attribute("index_type") else DType.i32
    values, places = li.top_k(x, k)
    return [values, li.convert(places, kind)]

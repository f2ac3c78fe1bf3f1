"""Ops that pick and place elements by integers, and that order them."""

from __future__ import annotations

from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.torch.call import Call, as_value
from lstm_ir.importers.torch.table import taken
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.along_axis import from_start
from lstm_ir.ops.primitive.broadcast import common_shape


@taken("aten.index_select.default")
def index_select(c: Call) -> Value:
    """Rows along an axis."""
    x, indices = c.tensor("self"), c.tensor("index")
    return li.take(x, indices if indices.rank else li.expand_dims(indices, 0), c.axis("dim", x.rank))


@taken("aten.gather.default", "aten.take_along_dim.default")
def gather(c: Call) -> Value:
    """One element for each index, which counts along an axis."""
    c.flag("sparse_grad")
    x, indices = c.tensor("self"), c.tensor("index" if c.given("index") else "indices")
    return li.gather_elements(x, indices, c.axis("dim", x.rank))


@taken("aten.index.Tensor", refused="masks; indices on axes that do not stand together")
def index(c: Call) -> Value:
    """Elements by lists of indices along axes that stand together; the lists broadcast."""
    x, given = c.tensor("self"), c.any("indices")
    axes = [a for a, v in enumerate(given) if v is not None]
    lists = [v for v in given if v is not None]
    if any(v.dtype is DType.i1 for v in lists):
        raise NodeRefusedError("a mask picks as many elements as only a call knows")
    if len(lists) == 1:
        return li.take(x, from_start(lists[0], x.shape[axes[0]]), axes[0])
    if axes != list(range(axes[0], axes[0] + len(axes))):
        raise NodeRefusedError(f"indices along the axes {axes}, which do not stand together")
    first = axes[0]
    moved = li.transpose(x, [*axes, *(a for a in range(x.rank) if a not in axes)])
    shape = c.shape[first : first + c.type.rank - (x.rank - len(axes))]
    each = [_places(v, x.shape[a], shape) for v, a in zip(lists, axes, strict=True)]
    found = li.gather_nd(moved, li.stack(each, len(shape)))
    order = [*range(len(shape), len(shape) + first), *range(len(shape)), *range(len(shape) + first, found.rank)]
    return li.transpose(found, order)


def _places(v: Value, size: Dim, shape: tuple[Dim, ...]) -> Value:
    """Indices of an axis of `size`, repeated to a shape."""
    return li.convert(li.broadcast_to(from_start(v, size), shape), DType.i64)


@taken("aten.scatter.src", "aten.scatter.value")
def scatter(c: Call) -> Value:
    """Elements placed by indices along an axis."""
    x, indices = c.tensor("self"), c.tensor("index")
    axis = c.axis("dim", x.rank)
    if c.name.endswith("src"):
        return li.put_along_axis(x, indices, _cut(c.tensor("src"), indices), axis)
    hits = li.put_along_axis(_none(x), indices, li.ones(indices.shape, DType.f32), axis, add=True)
    return _filled(x, hits, c.operand("value", x.dtype))


def _none(x: Value) -> Value:
    """A zero for each element of x."""
    return li.zeros(x.shape, DType.f32)


def _filled(x: Value, hits: Value, value: Value) -> Value:
    """x with one value wherever an index says so, however often. hits: how many indices there are of each place."""
    return li.where(li.greater(hits, 0.0), value, x)


@taken("aten.scatter_add.default")
def scatter_add(c: Call) -> Value:
    """Elements added by indices along an axis."""
    x, indices = c.tensor("self"), c.tensor("index")
    return li.put_along_axis(x, indices, _cut(c.tensor("src"), indices), c.axis("dim", x.rank), add=True)


def _cut(updates: Value, indices: Value) -> Value:
    """As many updates as there are indices: PyTorch leaves the others."""
    if updates.rank != indices.rank or updates.rank == 0:
        return li.broadcast_to(updates, indices.shape)
    return li.slice(updates, [0] * updates.rank, indices.shape)


@taken("aten.index_copy.default")
def index_copy(c: Call) -> Value:
    """Rows replaced along an axis."""
    return _rows(c, c.tensor("source"), False)


@taken("aten.index_add.default")
def index_add(c: Call) -> Value:
    """Rows added along an axis."""
    rows, alpha = c.tensor("source"), c.any("alpha", 1)
    return _rows(c, rows if alpha == 1 else rows * as_value(alpha, rows.dtype), True)


@taken("aten.index_fill.int_Scalar")
def index_fill(c: Call) -> Value:
    """Rows of one number along an axis."""
    x = c.tensor("self")
    hits = _rows(c, constant(1.0, DType.f32), True, _none(x))
    return _filled(x, hits, c.operand("value", x.dtype))


def _rows(c: Call, rows: Value, add: bool, onto: Value | None = None) -> Value:
    """`rows` at indices along an axis of `onto`, the operand itself if it is not given."""
    x, indices = c.tensor("self") if onto is None else onto, c.tensor("index")
    axis = c.axis("dim", x.rank)
    n = indices.shape[0] if indices.rank else 1
    shape = (*x.shape[:axis], n, *x.shape[axis + 1 :])
    wide = li.broadcast_in_dim(li.reshape(indices, (n,)), shape, (axis,))
    return li.put_along_axis(x, wide, li.broadcast_to(rows, shape), axis, add=add)


@taken("aten.index_put.default", refused="masks with more than one value; axes other than the first")
def index_put(c: Call) -> Value:
    """Elements placed by lists of indices along the first axes, or a value where a mask is true."""
    x, given, values = c.tensor("self"), c.any("indices"), c.tensor("values")
    add = c.flag("accumulate")
    lists = [v for v in given if v is not None]
    if [v is not None for v in given] != [True] * len(lists):
        raise NodeRefusedError("indices along axes other than the first are not taken")
    if lists[0].dtype is DType.i1:
        if len(lists) > 1 or values.rank or add:
            raise NodeRefusedError("a mask with more than one value is not taken")
        mask = li.broadcast_in_dim(lists[0], x.shape, tuple(range(lists[0].rank)))
        return li.where(mask, li.convert(values, x.dtype), x)
    wide = common_shape("index_put", [v.shape for v in lists])
    each = [_places(v, x.shape[a], wide) for a, v in enumerate(lists)]
    places, shape = li.stack(each, len(wide)), (*wide, *x.shape[len(lists) :])
    if values.rank == 0 and not add:
        hits = li.scatter_nd(_none(x), places, li.ones(shape, DType.f32), add=True)
        return _filled(x, hits, li.convert(values, x.dtype))
    return li.scatter_nd(x, places, li.broadcast_to(values, shape), add=add)


@taken("aten.topk.default")
def topk(c: Call) -> list[Any]:
    """The k largest or smallest along an axis, in order."""
    x, k = c.tensor("self"), c.size("k")
    c.flag("sorted", True)
    values, places = li.top_k(x, k, c.axis("dim", x.rank, -1), c.flag("largest", True))
    return [values, li.convert(places, DType.i64)]


@taken("aten.sort.default", "aten.sort.stable", "aten.argsort.default", "aten.argsort.stable")
def sort(c: Call) -> Any:
    """Elements in order along an axis, with their places; equal ones keep their order."""
    x, descending = c.tensor("self"), c.flag("descending")
    c.any("stable")
    axis = c.axis("dim", x.rank, -1)
    places = li.argsort(x, axis, descending)
    at = li.convert(places, DType.i64)
    return at if "argsort" in c.name else [li.take_along_axis(x, places, axis), at]

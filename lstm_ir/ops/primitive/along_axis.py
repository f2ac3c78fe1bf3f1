"""Elements picked and placed by integers: along an axis, or by tuples of indices."""

from __future__ import annotations

from typing import Any

from lstm_ir.ir import dims, options
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.location import here
from lstm_ir.ir.opdef import RuleError, need_equal
from lstm_ir.ir.types import DimLike, DType, DTypeLike, Shape
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import as_values, broadcast_in_dim, broadcast_to, common_shape, shape_for
from lstm_ir.ops.primitive.fill import full, iota, zeros
from lstm_ir.ops.primitive.gather import scatter_add, take
from lstm_ir.ops.primitive.reduce import argmax
from lstm_ir.ops.primitive.shape import axis_of, concat, expand_dims, reshape, squeeze
from lstm_ir.ops.primitive.size import in_range, size_value
from lstm_ir.ops.primitive.window import slice_axis


def _refused(op: str, problem: str, **operands: Value) -> IRError:
    return IRError(message(op, problem, [(n, v.type) for n, v in operands.items()], here()))


def _need_equal(op: str, a: Dim, b: Dim, problem: str, **operands: Value) -> None:
    try:
        need_equal(a, b, problem)
    except RuleError as err:
        raise _refused(op, str(err), **operands) from None


def from_start(indices: Value, size: Dim) -> Value:
    """Indices counted from either end, counted from the start."""
    return e.select(e.less(indices, 0), indices + size_value(size, indices.dtype), indices)


def _inside(op: str, indices: Value, size: Dim) -> Value:
    """Indices i64 in 0 ... size - 1; those below 0 are counted from the end."""
    if not indices.dtype.is_int:
        raise _refused(op, f"indices are {indices.dtype}, not integers", indices=indices)
    if size == 0 and dims.product(indices.shape) != 0:
        raise _refused(op, "the axis that indices name has no elements", indices=indices)
    last = 0 if size == 0 else dims.add(size, -1)
    return in_range(from_start(e.convert(indices, DType.i64), size), 0, last)


def _places(op: str, x: Value, indices: Value, axis: int, shape: Shape | None = None) -> Value:
    """Where the elements that `indices` name along `axis` lie in x read row by row; indices broadcast to `shape`.

    Without a shape they are at most as many as x has along the other axes. They are looked at before they broadcast:
    IREE puts what is broadcast, checked and used on the stack.
    """
    wide = indices.shape if shape is None else shape
    along, total = broadcast_to(_inside(op, indices, x.shape[axis]), wide), None
    for a in range(x.rank):
        if a == axis:
            place = along
        else:
            place = _steps(op, x, indices, a) if shape is None else iota(shape, a, DType.i64)
        part = place * size_value(dims.product(x.shape[a + 1 :]), DType.i64)
        total = part if total is None else total + part
    assert total is not None
    return total


def _steps(op: str, x: Value, indices: Value, a: int) -> Value:
    """The place of each index on another axis of x, which is as long as that of the indices, or longer."""
    n, size = indices.shape[a], x.shape[a]
    fits = dims.at_least(dims.add(size, dims.mul(n, -1)), 0)
    if fits is False:
        raise _refused(op, f"indices have size {n} on axis {a}, x has {size}", x=x, indices=indices)
    if fits:
        return iota(indices.shape, a, DType.i64)
    steps = slice_axis(iota((size,), 0, DType.i64), 0, 0, n)  # only a call can tell: the slice asks it
    return broadcast_in_dim(steps, indices.shape, (a,))


def picked(op: str, rows: Value, places: Value) -> Value:
    """Rows [N, ...] at places i64; none at all where there are no places, N may be 0 then."""
    n = rows.shape[0]
    if dims.at_least(n, 1) is not True:  # a row behind the last one: `gather` has to have one
        if n == 0 and dims.product(places.shape) != 0:
            raise _refused(op, "there is nothing to pick from", x=rows, indices=places)
        rows = concat([rows, zeros((1, *rows.shape[1:]), rows.dtype)])
    return take(rows, places)


def _flat(x: Value) -> Value:
    return reshape(x, (dims.product(x.shape),))


def _indexed(op: str, x: Any, indices: Any) -> tuple[Value, Value]:
    (v,) = as_values(op, x)
    at = indices if isinstance(indices, Value) else constant(indices)
    if at.rank != v.rank or not v.rank:
        raise _refused(op, f"indices have {at.rank} axes, x has {v.rank}", x=v, indices=at)
    return v, at


def gather_elements(x: Any, indices: Any, axis: int = -1) -> Value:
    """One element for each index, which counts along `axis`; on other axes indices may be fewer than x has.

    x [...], indices of as many axes; an index below 0 counts from the end. The place on other axes is the index's
    own: PyTorch's `gather`, ONNX's GatherElements.
    """
    v, at = _indexed("gather_elements", x, indices)
    place = _places("gather_elements", v, at, axis_of("gather_elements", v, axis))
    return picked("gather_elements", _flat(v), place)


def take_along_axis(x: Any, indices: Any, axis: int = -1) -> Value:
    """One element for each index, which counts along `axis`; other axes broadcast, as in NumPy's function.

    An index below 0 counts from the end.
    """
    v, at = _indexed("take_along_axis", x, indices)
    along = axis_of("take_along_axis", v, axis)
    wide = common_shape("take_along_axis", [s.type.resized(along, 1).shape for s in (v, at)])
    v = broadcast_to(v, (*wide[:along], v.shape[along], *wide[along + 1 :]))
    shape = (*wide[:along], at.shape[along], *wide[along + 1 :])
    return picked("take_along_axis", _flat(v), _places("take_along_axis", v, at, along, shape))


def _placed(rows: Value, places: Value, updates: Value, add: bool) -> Value:
    """Rows [N, ...] with those at places [M] replaced by, or increased by, updates [M, ...]."""
    if rows.shape[0] == 0:
        return rows
    if add:
        return scatter_add(rows, places, updates)
    kind = DType.i8 if rows.dtype is DType.i1 else rows.dtype
    new = scatter_add(zeros(rows.shape, kind), places, e.convert(updates, kind))
    hits = scatter_add(zeros((rows.shape[0],), DType.i32), places, full(places.shape, 1, DType.i32))
    hit = broadcast_in_dim(e.greater(hits, 0), rows.shape, (0,))
    return e.select(hit, e.convert(new, rows.dtype), rows)


def _with_one_of_each_row(x: Value, indices: Value, updates: Value, axis: int) -> Value:
    """One element of each row along `axis` replaced, by a select, which kernels take too."""
    place = _inside("put_along_axis", indices, x.shape[axis])
    hit = e.equal(iota(x.shape, axis, DType.i64), broadcast_to(place, x.shape))
    return e.select(hit, broadcast_to(updates, x.shape), x)


def put_along_axis(x: Any, indices: Any, updates: Any, axis: int = -1, add: bool = False) -> Value:
    """x with `updates` at the places that indices name along `axis`, instead of what is there, or added to it.

    x [...], indices of as many axes, updates of their shape, or one that broadcasts to it. On other axes indices may
    be fewer than x has, which leaves the rest of x as it is, also where there is one: NumPy repeats it, and so does
    `broadcast_to`. An index below 0 counts from the end. Without `add` no place may be named twice.
    """
    v, at = _indexed("put_along_axis", x, indices)
    _, new = as_values("put_along_axis", v, updates)
    along, more = axis_of("put_along_axis", v, axis), options.flag("put_along_axis", "add", add)
    if not more and at.shape == v.type.resized(along, 1).shape:
        return _with_one_of_each_row(v, at, broadcast_to(new, at.shape), along)
    place = reshape(_places("put_along_axis", v, at, along), (dims.product(at.shape),))
    return reshape(_placed(_flat(v), place, _flat(broadcast_to(new, at.shape)), more), v.shape)


def _columns(op: str, x: Value, indices: Value, batch: int) -> list[Value]:
    """For each axis of x that tuples of indices name, the place on it."""
    depth = indices.shape[-1] if indices.rank else None
    if not isinstance(depth, int) or not 0 <= batch < indices.rank or not 1 <= depth <= x.rank - batch:
        problem = f"the last axis of indices is 1 to the number of axes of x, after {batch} of the batch"
        raise _refused(op, problem, x=x, indices=indices)
    for a, (n, size) in enumerate(zip(indices.shape[:batch], x.shape[:batch], strict=True)):
        _need_equal(op, n, size, f"indices have size {n} on axis {a} of the batch, x has {size}", x=x, indices=indices)
    last = indices.rank - 1
    columns = [iota(indices.shape[:-1], a, DType.i64) for a in range(batch)]
    for k in range(depth):
        column = squeeze(slice_axis(indices, last, k, k + 1), last)
        columns.append(_inside(op, column, x.shape[batch + k]))
    return columns


def _row_numbers(x: Value, columns: list[Value]) -> tuple[Value, Value]:
    """The rows of x, all axes that columns name as one, and the number of the row for each tuple."""
    known = len(columns)
    parts = [c * size_value(dims.product(x.shape[a + 1 : known]), DType.i64) for a, c in enumerate(columns)]
    place = parts[0]
    for part in parts[1:]:
        place = place + part
    return reshape(x, (dims.product(x.shape[:known]), *x.shape[known:])), place


def gather_nd(x: Any, indices: Any, batch: int = 0) -> Value:
    """Slices of x picked by tuples of indices [..., K], for its first K axes: [..., those of x after them].

    The first `batch` axes are those of both. An index below 0 counts from the end.
    """
    (v,) = as_values("gather_nd", x)
    at = indices if isinstance(indices, Value) else constant(indices)
    rows, place = _row_numbers(v, _columns("gather_nd", v, at, options.integer("gather_nd", "batch", batch)))
    return picked("gather_nd", rows, place)


def scatter_nd(x: Any, indices: Any, updates: Any, add: bool = False) -> Value:
    """x with slices at tuples of indices [..., K] replaced by `updates` [..., axes of x after K], or increased by them.

    An index below 0 counts from the end. Without `add` no place may be named twice.
    """
    v, new = as_values("scatter_nd", x, updates)
    at = indices if isinstance(indices, Value) else constant(indices)
    columns, more = _columns("scatter_nd", v, at, 0), options.flag("scatter_nd", "add", add)
    rows, place = _row_numbers(v, columns)
    fits = (*place.shape, *rows.shape[1:])
    if new.rank != len(fits):
        shape = ",".join(map(str, fits))
        raise _refused("scatter_nd", f"updates have {new.rank} axes, expected [{shape}]", x=v, indices=at, updates=new)
    for a, (n, size) in enumerate(zip(new.shape, fits, strict=True)):
        problem = f"updates have size {n} on axis {a}, expected {size}"
        _need_equal("scatter_nd", n, size, problem, x=v, indices=at, updates=new)
    count = dims.product(place.shape)
    out = _placed(rows, reshape(place, (count,)), reshape(new, (count, *rows.shape[1:])), more)
    return reshape(out, v.shape)


def reverse_sequence(x: Any, lengths: Any) -> Value:
    """x [T,B,...] whose column b has its first lengths[b] steps backwards; the others stay."""
    (v,) = as_values("reverse_sequence", x)
    n = lengths if isinstance(lengths, Value) else constant(lengths)
    if v.rank < 2 or n.shape != v.shape[1:2] or not n.dtype.is_int:
        raise _refused("reverse_sequence", "x is [T,B,...], lengths are integers [B]", x=v, lengths=n)
    T, B, *rest = v.shape
    n = broadcast_in_dim(in_range(e.convert(n, DType.i64), 0, T), (T, B), (1,))
    step = iota((T, B), 0, DType.i64)
    source = e.select(e.less(step, n), n - step - 1, step)
    places = source * size_value(B, DType.i64) + iota((T, B), 1, DType.i64)
    return picked("reverse_sequence", reshape(v, (dims.mul(T, B), *rest)), places)


def one_hot(indices: Any, depth: DimLike, *, axis: int = -1, dtype: DTypeLike = "f32") -> Value:
    """A new axis of `depth` places: 1 where the index stands, 0 elsewhere and for an index outside 0 ... depth - 1."""
    at = indices if isinstance(indices, Value) else constant(indices)
    if not at.dtype.is_int:
        raise _refused("one_hot", f"indices are {at.dtype}, not integers", indices=at)
    (size,) = shape_for("one_hot", (depth,))
    new = axis_of("one_hot", at, axis, extra=1)
    shape = (*at.shape[:new], size, *at.shape[new:])
    wide = e.convert(at, DType.i64)
    return e.convert(e.equal(broadcast_to(expand_dims(wide, new), shape), iota(shape, new, DType.i64)), dtype)


def hardmax(x: Any, axis: int = -1) -> Value:
    """1 where the first of the largest stands along `axis`, 0 elsewhere, in x's dtype; its gradient is 0."""
    (v,) = as_values("hardmax", x)
    at = axis_of("hardmax", v, axis)
    return one_hot(argmax(v, at), v.shape[at], axis=at, dtype=v.dtype)

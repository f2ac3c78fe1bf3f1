"""NumPy's functions that rearrange: split, tile, repeat, flip, roll, and parts beside a diagonal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from lstm_ir.ir import dims, options
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.location import here
from lstm_ir.ir.types import DimLike, DType, DTypeLike
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import as_values, broadcast_in_dim, shape_for
from lstm_ir.ops.primitive.fill import iota
from lstm_ir.ops.primitive.indexing import index
from lstm_ir.ops.primitive.shape import axes_of, axis_of, concat, reshape, reverse
from lstm_ir.ops.primitive.size import size_value
from lstm_ir.ops.primitive.window import dynamic_slice, slice_axis


def where(condition: Any, x: Any, y: Any) -> Value:
    """x where the condition (i1) holds, else y; all three broadcast."""
    (c,) = as_values("where", condition)
    if c.dtype is not DType.i1:
        problem = f"the condition is {c.dtype}, not i1; compare it with something"
        raise IRError(message("where", problem, [("condition", c.type)], here()))
    return e.select(c, x, y)


def split(x: Any, parts: int | Sequence[DimLike], axis: int = 0) -> list[Value]:
    """Parts of x along `axis`: so many equal ones, or those between places, as in NumPy's `split`."""
    (v,) = as_values("split", x)
    at = axis_of("split", v, axis)
    n = v.shape[at]
    places: Sequence[Any]
    if options.is_int(parts):
        count = int(parts)
        if count < 1:
            raise options.refuse("split", "parts", parts, "1 or more, or a list of places")
        each = dims.floordiv(n, count)
        if dims.mul(each, count) != n:
            problem = f"axis {at} of size {n} is not known to divide into {count} parts; a list of places cuts anywhere"
            raise IRError(message("split", problem, [("x", v.type)], here()))
        places = [dims.mul(each, k) for k in range(1, count)]
    else:
        places = options.several("split", "parts", parts)
    bounds = [0, *places, None]
    whole = (slice(None),) * at
    return [index(v, (*whole, slice(a, b))) for a, b in pairwise(bounds)]


def split_sizes(x: Value, axis: int, sizes: Sequence[Dim]) -> list[Value]:
    """Parts of these sizes, one after another from the start."""
    out = []
    start: Dim = 0
    for part in sizes:
        end = dims.add(start, part)
        out.append(slice_axis(x, axis, start, end))
        start = end
    return out


def tile(x: Any, reps: DimLike | Sequence[DimLike]) -> Value:
    """x repeated whole, so many times along each axis, as in NumPy's `tile`."""
    (v,) = as_values("tile", x)
    one = options.is_int(reps) or isinstance(reps, (str, dims.Expr))
    counts = shape_for("tile", [reps] if one else options.several("tile", "reps", reps))  # type: ignore[list-item]
    counts = (*(1,) * (v.rank - len(counts)), *counts)
    old = (*(1,) * (len(counts) - v.rank), *v.shape)
    pairs = tuple(d for r, n in zip(counts, old, strict=True) for d in (r, n))
    wide = broadcast_in_dim(reshape(v, old), pairs, tuple(range(1, 2 * len(old), 2)))
    return reshape(wide, tuple(dims.mul(r, n) for r, n in zip(counts, old, strict=True)))


def repeat(x: Any, repeats: DimLike, axis: int | None = None) -> Value:
    """Each element along `axis` so many times in turn, as in NumPy's `repeat`; without `axis`, x is one row."""
    (v,) = as_values("repeat", x)
    if not (options.is_int(repeats) or isinstance(repeats, (str, dims.Expr))):
        expected = "one number or size; li.take(x, places) repeats as places say"
        raise options.refuse("repeat", "repeats", repeats, expected)
    (times,) = shape_for("repeat", [repeats])
    v = reshape(v, (-1,)) if axis is None and v.rank != 1 else v
    at = 0 if axis is None else axis_of("repeat", v, axis)
    before, after = v.shape[: at + 1], v.shape[at + 1 :]
    kept = tuple(d for d in range(v.rank + 1) if d != at + 1)
    wide = broadcast_in_dim(v, (*before, times, *after), kept)
    return reshape(wide, (*v.shape[:at], dims.mul(v.shape[at], times), *after))


def flip(x: Any, axis: int | Sequence[int] | None = None) -> Value:
    """Elements in opposite order along `axis`, all axes without it; the same as `reverse`."""
    (v,) = as_values("flip", x)
    return reverse(v, axes_of("flip", v, axis))


def roll(x: Any, shift: Any, axis: int | Sequence[int] | None = None) -> Value:
    """Elements moved by `shift` places, those behind the end back to the start, as in NumPy's `roll`.

    A shift is an integer, or a value i32[]; a list has one for each axis. Without `axis`, x is one row.
    """
    (v,) = as_values("roll", x)
    if axis is None:
        return reshape(_rolled(reshape(v, (-1,)) if v.rank != 1 else v, 0, shift), v.shape)
    many = (axis,) if options.is_int(axis) else options.several("roll", "axis", axis)
    shifts = options.several("roll", "shift", shift) if isinstance(shift, (list, tuple)) else (shift,) * len(many)
    if len(shifts) != len(many):
        raise options.refuse("roll", "shift", shift, f"one for each of {len(many)} axes")
    for by, a in zip(shifts, many, strict=True):
        v = _rolled(v, axis_of("roll", v, a), by)
    return v


def _rolled(x: Value, axis: int, shift: Any) -> Value:
    n = x.shape[axis]
    if not isinstance(shift, Value):
        by = options.integer("roll", "shift", shift)
        if isinstance(n, int):
            cut = n - by % n if n else 0
            if cut in (0, n):
                return x
            return concat([slice_axis(x, axis, cut, n), slice_axis(x, axis, 0, cut)], axis)
        if by == 0:
            return x
        shift = constant(by, DType.i32)
    elif shift.rank or shift.dtype is not DType.i32:
        raise IRError(message("roll", f"the shift is {shift.type}, not i32[]", [("x", x.type)], here()))
    count = size_value(n, DType.i32)
    left = e.remainder(shift, count)  # the sign is the shift's; of no elements it is the shift
    start = e.select(e.greater(left, 0), count - left, -left)
    starts = [start if a == axis else 0 for a in range(x.rank)]
    return dynamic_slice(concat([x, x], axis), starts, x.shape)


def tril(x: Any, k: DimLike = 0) -> Value:
    """The elements on and below the k-th diagonal of the last two axes; 0 elsewhere."""
    return _beside_diagonal("tril", x, k)


def triu(x: Any, k: DimLike = 0) -> Value:
    """The elements on and above the k-th diagonal of the last two axes; 0 elsewhere."""
    return _beside_diagonal("triu", x, k)


def _beside_diagonal(op: str, x: Any, k: DimLike) -> Value:
    (v,) = as_values(op, x)
    if v.rank < 2:
        raise IRError(message(op, "x has less than two axes", [("x", v.type)], here()))
    kept = (e.less_equal if op == "tril" else e.greater_equal)(*_diagonal(op, v.shape, k))
    return e.select(kept, v, constant(0, v.dtype))


def _diagonal(op: str, shape: tuple[Dim, ...], k: DimLike) -> tuple[Value, Value]:
    """Which diagonal each element lies on, and the number of the k-th."""
    rank = len(shape)
    found = iota(shape, rank - 1, DType.i64) - iota(shape, rank - 2, DType.i64)
    d = dims.parse(k) if isinstance(k, str) else k if isinstance(k, dims.Expr) else options.integer(op, "k", k)
    return found, size_value(d, DType.i64)


def eye(n: DimLike, m: DimLike | None = None, k: DimLike = 0, dtype: DTypeLike = "f32") -> Value:
    """[n, m] with 1 on the k-th diagonal, 0 elsewhere; m is n if not given."""
    shape = shape_for("eye", (n, n if m is None else m))
    return e.convert(e.equal(*_diagonal("eye", shape, k)), dtype)

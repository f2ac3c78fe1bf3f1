"""Ops that rearrange: reshape, transpose, reverse, concatenate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lstm_ir.ir import dims, options
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.location import here
from lstm_ir.ir.opdef import OPS, Attr, Trait, define, need, need_at_least, need_equal
from lstm_ir.ir.pullback import Cts, only
from lstm_ir.ir.types import DimLike, Shape, TensorType
from lstm_ir.ops.primitive.broadcast import as_values, shape_for


def _reshape_types(operand: TensorType, *, shape: Shape) -> TensorType:
    for d in shape:
        need_at_least(d, 0, f"a size of [{','.join(map(str, shape))}] is negative")
    old, new = dims.product(operand.shape), dims.product(shape)
    need_equal(old, new, f"{operand} has {old} elements, [{','.join(map(str, shape))}] has {new}")
    return operand.with_shape(shape)


def _reshape_vjp(node: Node, cts: Cts) -> Cts:
    """Reshaped back."""
    return (reshape(only(cts), node.inputs[0].shape),)


RESHAPE = define(
    "reshape", "operand", attrs={"shape": Attr("dims")}, types=_reshape_types,
    numpy=lambda x, *, shape: x.reshape(shape), vjp=_reshape_vjp, traits=(Trait.data_movement,),
)  # fmt: skip


def _transpose_types(operand: TensorType, *, permutation: tuple[int, ...]) -> TensorType:
    axes = list(range(operand.rank))
    need(sorted(permutation) == axes, f"permutation {permutation} does not order the axes {axes}")
    return operand.with_shape(operand.shape[p] for p in permutation)


def _transpose_vjp(node: Node, cts: Cts) -> Cts:
    """The inverse permutation."""
    order = node.attrs["permutation"]
    return (transpose(only(cts), tuple(order.index(i) for i in range(len(order)))),)


TRANSPOSE = define(
    "transpose", "operand", attrs={"permutation": Attr("ints")}, types=_transpose_types,
    numpy=lambda x, *, permutation: np.transpose(x, permutation), vjp=_transpose_vjp,
    traits=(Trait.data_movement,),
)  # fmt: skip


def _reverse_types(operand: TensorType, *, dimensions: tuple[int, ...]) -> TensorType:
    need_axes(operand, dimensions)
    return operand


def _reverse_vjp(node: Node, cts: Cts) -> Cts:
    """Reversed back."""
    return (reverse(only(cts), node.attrs["dimensions"]),)


REVERSE = define(
    "reverse", "operand", attrs={"dimensions": Attr("ints")}, types=_reverse_types,
    numpy=lambda x, *, dimensions: np.flip(x, dimensions), vjp=_reverse_vjp,
    traits=(Trait.data_movement,),
)  # fmt: skip


def _concatenate_types(inputs: tuple[TensorType, ...], *, dimension: int) -> TensorType:
    need(len(inputs) > 0, "takes at least one value")
    first = inputs[0]
    need_axes(first, (dimension,))
    total: Dim = 0
    for i, t in enumerate(inputs):
        need(t.dtype is first.dtype, f"value {i} is {t.dtype}, value 0 {first.dtype}")
        need(t.rank == first.rank, f"value {i} has rank {t.rank}, value 0 rank {first.rank}")
        for axis, (a, b) in enumerate(zip(t.shape, first.shape, strict=True)):
            if axis != dimension:
                need_equal(a, b, f"value {i} has size {a} on axis {axis}, value 0 size {b}")
        total = dims.add(total, t.shape[dimension])
    return first.resized(dimension, total)


def _concatenate_vjp(node: Node, cts: Cts) -> tuple[tuple[Value, ...]]:
    """Each operand's own part: a slice, made by name, since the gradient of slices needs this file."""
    ct, axis = only(cts), node.attrs["dimension"]
    parts: list[Value] = []
    at: Dim = 0
    for v in node.inputs:
        low: list[Dim] = [0] * ct.rank
        low[axis], end = at, dims.add(at, v.shape[axis])
        high, steps = ct.type.resized(axis, end).shape, (1,) * ct.rank
        part = make(OPS["slice"], ct, start_indices=low, limit_indices=high, strides=steps)
        parts.append(ct if v.shape == ct.shape else part.values[0])
        at = end
    return (tuple(parts),)


CONCATENATE = define(
    "concatenate", "inputs*", attrs={"dimension": Attr("int")}, types=_concatenate_types,
    numpy=lambda xs, *, dimension: np.concatenate(xs, dimension), vjp=_concatenate_vjp,
    traits=(Trait.data_movement,),
)  # fmt: skip


def need_axes(operand: TensorType, axes: Sequence[int]) -> None:
    """Inside a type rule: refuse an axis that is repeated or not there."""
    for a in axes:
        need(0 <= a < operand.rank, f"axis {a} is outside 0..{operand.rank - 1} of {operand}")
    need(len(set(axes)) == len(axes), f"axes {tuple(axes)} name one axis twice")


def axis_of(op: str, x: Value, axis: int, extra: int = 0) -> int:
    """An axis counted from the end or the start, as an index below the rank (+ `extra`)."""
    rank = x.rank + extra
    if not options.is_int(axis) or not -rank <= axis < rank:
        problem = f"axis {axis!r} is outside {-rank}..{rank - 1}"
        raise IRError(message(op, problem, [("operand", x.type)], here()))
    return int(axis) % rank


def axes_of(op: str, x: Value, axis: int | Sequence[int] | None) -> tuple[int, ...]:
    """The axes meant by NumPy's `axis`: all for None, one, or several, ascending."""
    if axis is None:
        return tuple(range(x.rank))
    many = (axis,) if options.is_int(axis) else options.several(op, "axis", axis)
    return tuple(sorted(axis_of(op, x, a) for a in many))


def reshape(x: Any, shape: Sequence[DimLike] | DimLike) -> Value:
    """The same elements, row by row, in `shape`; one size may be -1."""
    (v,) = as_values("reshape", x)
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    free = [i for i, s in enumerate(sizes) if isinstance(s, (int, np.integer)) and s == -1]
    to = shape_for("reshape", (1 if i in free else s for i, s in enumerate(sizes)))
    if free:
        left = quotient(v.shape, to) if len(free) == 1 else None
        if left is None:
            shown = ",".join(map(str, sizes))
            problem = f"the -1 in [{shown}] stands for no size that can be decided"
            raise IRError(message("reshape", problem, [("operand", v.type)], here()))
        to = (*to[: free[0]], left, *to[free[0] + 1 :])
    return v if to == v.shape else make(RESHAPE, v, shape=to).values[0]


def quotient(shape: Shape, known: Shape) -> Dim | None:
    """product(shape) / product(known) as an expression; None if it is not one."""
    rest, by = list(shape), []
    for d in known:
        if d != 0 and d in rest:
            rest.remove(d)
        else:
            by.append(d)
    divisor = dims.product(tuple(by))
    total = dims.product(tuple(rest))
    terms = divisor.terms if isinstance(divisor, dims.Expr) else (((), divisor),)
    if len(terms) != 1 or divisor == 0:
        return None
    atoms, k = terms[0]
    out: Dim = 0
    for mono, c in total.terms if isinstance(total, dims.Expr) else (((), total),):
        left = list(mono)
        for a in atoms:
            if a not in left:
                return None
            left.remove(a)
        if c % k:
            return None
        one: Dim = dims.Expr(((tuple(left), c // k),)) if left else c // k
        out = dims.add(out, one)
    return out


def transpose(x: Any, axes: Sequence[int] | None = None) -> Value:
    """Result axis i is axis axes[i] of x; without `axes`, all reversed."""
    (v,) = as_values("transpose", x)
    given = range(v.rank)[::-1] if axes is None else options.several("transpose", "axes", axes)
    order = [axis_of("transpose", v, a) for a in given]
    if order == list(range(v.rank)):
        return v
    return make(TRANSPOSE, v, permutation=tuple(order)).values[0]


def swapaxes(x: Value, a: int, b: int) -> Value:
    """Two axes exchanged."""
    order = list(range(x.rank))
    i, j = axis_of("transpose", x, a), axis_of("transpose", x, b)
    order[i], order[j] = order[j], order[i]
    return transpose(x, order)


def reverse(x: Any, axis: int | Sequence[int] | None = None) -> Value:
    """Elements in opposite order along `axis`, all axes without it."""
    (v,) = as_values("reverse", x)
    found = axes_of("reverse", v, axis)
    return make(REVERSE, v, dimensions=found).values[0] if found else v


def concat(xs: Sequence[Any], axis: int = 0) -> Value:
    """Values one after another along `axis`."""
    _need_list("concat", xs)
    vs = as_values("concatenate", *xs)
    if not vs:
        raise IRError(message("concatenate", "takes at least one value", (), here()))
    if len(vs) == 1:
        axis_of("concatenate", vs[0], axis)
        return vs[0]
    return make(CONCATENATE, vs, dimension=axis_of("concatenate", vs[0], axis)).values[0]


def stack(xs: Sequence[Any], axis: int = 0) -> Value:
    """Values of one shape along a new axis."""
    _need_list("stack", xs)
    vs = as_values("concatenate", *xs)
    return concat([expand_dims(v, axis) for v in vs], axis)


def _need_list(op: str, xs: object) -> None:
    if isinstance(xs, Value):
        raise IRError(message(op, f"takes a list of values: li.{op}([x, y])", [("xs", xs.type)], here()))


def expand_dims(x: Any, axis: int | Sequence[int]) -> Value:
    """x with axes of size 1 at these places of the result."""
    (v,) = as_values("expand_dims", x)
    many = (axis,) if options.is_int(axis) else options.several("expand_dims", "axis", axis)
    at = sorted(axis_of("expand_dims", v, a, len(many)) for a in many)
    if len(set(at)) < len(at):
        raise IRError(message("expand_dims", f"axis {axis} names one place twice", [("operand", v.type)], here()))
    shape = list(v.shape)
    for a in at:
        shape.insert(a, 1)
    return reshape(v, shape)


def squeeze(x: Any, axis: int | Sequence[int] | None = None) -> Value:
    """x without these axes, which have size 1; without `axis`, all axes of size 1."""
    (v,) = as_values("squeeze", x)
    gone = tuple(i for i, d in enumerate(v.shape) if d == 1) if axis is None else axes_of("squeeze", v, axis)
    for i in gone:
        if v.shape[i] != 1:
            raise IRError(message("squeeze", f"axis {i} has size {v.shape[i]}, not 1", [("operand", v.type)], here()))
    return reshape(v, tuple(d for i, d in enumerate(v.shape) if i not in gone))

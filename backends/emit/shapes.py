"""Shapes in the module: elements in another shape, counted along an axis, or all one number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.mlir_types import array_attr, tensor
from lstm_ir.backends.emit.regions import signed_back, signless
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Value
from lstm_ir.ir.literals import splat
from lstm_ir.ir.types import DType, Shape, TensorType

_CUTS = ("stablehlo.slice", "stablehlo.dynamic_slice", "tensor.extract_slice")


def fills_itself(e: Emitter) -> bool:
    """Whether a loop writes the numbers that it starts from: a CPU's kernel does."""
    return e.has_cpu_kernels


def number_filled(v: Value) -> Any:
    """The number of a `fill` that `v` may be lowered as; None for what is lowered as it is.

    Narrower than `splat`: literals are the module's constants, and a moved fill is moved.
    """
    return splat(v) if v.op == "broadcast_in_dim" and v.node.inputs[0].rank == 0 else None


def fill(e: Emitter, number: float, t: TensorType) -> ir.Value:
    """A buffer of one number, for what keeps its operands in memory."""
    filled = e.filled(number, t, own=True)
    return filled if e.target is None else e.opaque(filled, t)


def iota(e: Emitter, t: TensorType, axis: int) -> ir.Value:
    """0, 1, 2, ... along `axis`. Counted in 32 bits: a narrow dtype wraps or rounds once."""
    wide = t if t.dtype.bits >= 32 else t.with_dtype(DType.f32 if t.dtype.is_float else DType.i32)
    at = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis)
    if t.is_static:
        v = e.hlo("iota", [], wide, iota_dimension=at)
    else:
        v = e.hlo("dynamic_iota", [e.shape(t.shape)], wide, iota_dimension=at)
    return e.convert(v, wide, t.dtype)


def transpose(e: Emitter, x: ir.Value, t: TensorType, order: Sequence[int]) -> tuple[ir.Value, TensorType]:
    """The axes in this order, and the type that this is."""
    to = t.with_shape(t.shape[axis] for axis in order)
    return e.hlo("transpose", [x], to, permutation=array_attr(order)), to


def reshape(e: Emitter, x: ir.Value, t: TensorType, shape: Shape) -> ir.Value:
    """The same elements in `shape`."""
    to = t.with_shape(shape)
    if to == t:
        return x
    if t.is_static and to.is_static:
        if e.target is not None and dims.product(shape) == 1 and to.rank > t.rank and _is_cut(x):
            x = e.hidden(x)  # IREE 3.13 makes one slice of both, of more axes than its operand has
        return e.hlo("reshape", [x], to)
    if dims.product(t.shape) == 0:  # no grouping of axes keeps a size of 0 apart from the others
        return e.full(0, to)
    v, kind = signless(e, x, t)
    old, new = groups(t.shape, shape)
    middle = kind.with_shape(dims.product(tuple(t.shape[i] for i in g)) for g in old)
    if middle != kind:
        v = e.op("tensor.collapse_shape", [v], middle, reassociation=_lists(old))
    result = kind.with_shape(shape)
    if middle != result:
        dynamic = ir.ShapedType.get_dynamic_size()
        moving = [e.size(d) for d in shape if not isinstance(d, int)]
        static = [d if isinstance(d, int) else dynamic for d in shape]
        attrs = {"reassociation": _lists(new), "static_output_shape": array_attr(static)}
        v = e.make("tensor.expand_shape", [v, *moving], [tensor(result)], attrs).result
    return signed_back(e, v, to)


def _is_cut(x: ir.Value) -> bool:
    """Whether `x` is part of another tensor, by way of reshapes."""
    while not isinstance(x.owner, ir.Block):
        made = x.owner.operation
        if made.name != "stablehlo.reshape":
            return made.name in _CUTS
        x = made.operands[0]
    return False


def groups(old: Shape, new: Shape) -> tuple[list[list[int]], list[list[int]]]:
    """Axes of both shapes in the smallest groups of equal size, in order."""
    left: list[list[int]] = []
    right: list[list[int]] = []
    i = j = 0
    while i < len(old) and j < len(new):
        i, j = _group(old, new, i, j, left, right)
    if not left:  # rank 0 on one side: the other side's axes are all 1
        return [], []
    left[-1].extend(range(i, len(old)))
    right[-1].extend(range(j, len(new)))
    return left, right


def _group(old: Shape, new: Shape, i: int, j: int, left: list[list[int]], right: list[list[int]]) -> tuple[int, int]:
    a, b = [i], [j]
    i, j = i + 1, j + 1
    while (m := _size(old, a)) != (n := _size(new, b)):
        # Symbolic products have no order: the side with fewer factors grows.
        if j == len(new) or (i < len(old) and _weight(m) <= _weight(n)):
            a.append(i)
            i += 1
        else:
            b.append(j)
            j += 1
        if i == len(old) and j == len(new):
            break
    if _size(old, a) != _size(new, b):
        a.extend(range(i, len(old)))
        b.extend(range(j, len(new)))
        i, j = len(old), len(new)
    left.append(a)
    right.append(b)
    return i, j


def _size(shape: Shape, axes: list[int]) -> Dim:
    return dims.product(tuple(shape[a] for a in axes))


def _weight(d: Dim) -> tuple[int, int]:
    """Orders products by their degree, then by their coefficient."""
    if isinstance(d, int):
        return 0, d
    return max(len(m) for m, _ in d.terms), max(abs(k) for _, k in d.terms)


def _lists(axes: list[list[int]]) -> ir.Attribute:
    i64 = ir.IntegerType.get_signless(64)
    return ir.ArrayAttr.get([ir.ArrayAttr.get([ir.IntegerAttr.get(i64, a) for a in g]) for g in axes])

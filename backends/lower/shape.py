"""Lowering of ops that rearrange: broadcast, reshape, transpose, reverse, concatenate, iota."""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter, array_attr, lower, tensor
from lstm_ir.backends.emit.regions import signed_back, signless
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.types import DType, Shape, TensorType

_STORES = {"concatenate", "dynamic_update_slice", "scatter_add"}  # keep operands in memory


@lower("broadcast_in_dim")
def _broadcast(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    number = number_of(n.values[0])
    users = () if e.within is None else e.within.users.get(n.values[0], ())
    if number is not None and any(_stores(e, u, n.values[0]) for u in users):
        return fill(e, number, n.types[0])
    return e.broadcast(x, n.inputs[0].type, n.types[0], n.attrs["broadcast_dimensions"])


def _stores(e: Emitter, user: Node, v: Value) -> bool:
    loop = Loop.of(user)
    if loop is None:
        return user.op.name in _STORES
    return v in (*loop.consts, *loop.xs) or (v in loop.init and not fills_itself(e))


def fills_itself(e: Emitter) -> bool:
    """Whether a loop writes the numbers that it starts from: a CPU's kernel does."""
    return e.has_cpu_kernels


def number_of(v: Value) -> float | None:
    """The number that all elements of `v` are, where the graph says so."""
    n = v.node
    if n.op.name != "broadcast_in_dim" or n.inputs[0].rank or n.inputs[0].op != "constant":
        return None
    number: float = n.inputs[0].node.attrs["value"].array.item()
    return number


def fill(e: Emitter, number: float, t: TensorType) -> ir.Value:
    """A buffer of one number, for what keeps its operands in memory."""
    filled = e.filled(number, t, own=True)
    return filled if e.target is None else e.opaque(filled, t)


@lower("reshape")
def _reshape(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    return reshape(e, x, n.inputs[0].type, n.types[0].shape)


@lower("transpose")
def _transpose(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    return e.hlo("transpose", [x], n.types[0], permutation=array_attr(n.attrs["permutation"]))


@lower("reverse")
def _reverse(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    t = n.types[0]
    v, kind = signless(e, x, t)
    out = e.hlo("reverse", [v], kind, dimensions=array_attr(n.attrs["dimensions"]))
    return signed_back(e, out, t)


@lower("concatenate")
def _concatenate(e: Emitter, n: Node, xs: list[ir.Value]) -> ir.Value:
    if e.target is not None and e.target.kind != "cpu":
        return _joined(e, n, xs)
    axis = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), n.attrs["dimension"])
    return e.hlo("concatenate", xs, n.types[0], dimension=axis)


def _joined(e: Emitter, n: Node, xs: list[ir.Value]) -> ir.Value:
    """The parts written one after another into a new tensor.

    IREE may make one dispatch of a concatenation, which picks the buffer to read from element by
    element; lavapipe then reads all from the first one.
    """
    t, axis = n.types[0], n.attrs["dimension"]
    held = signless(e, xs[0], n.inputs[0].type)[1].dtype
    whole = e.filled(0, t.with_dtype(held))
    begin: Dim = 0
    for x, v in zip(xs, n.inputs, strict=True):
        at = [begin if a == axis else 0 for a in range(t.rank)]
        if v.shape[axis] != 0:  # the verifier refuses an empty part at the end
            whole = e.insert_slice(signless(e, x, v.type)[0], whole, at, list(v.shape))
        begin = dims.add(begin, v.shape[axis])
    return signed_back(e, whole, t)


@lower("iota")
def _iota(e: Emitter, n: Node) -> ir.Value:
    return iota(e, n.types[0], n.attrs["dimension"])


def iota(e: Emitter, t: TensorType, axis: int) -> ir.Value:
    """0, 1, 2, ... along `axis`. Counted in 32 bits: a narrow dtype wraps or rounds once."""
    wide = t if t.dtype.bits >= 32 else t.with_dtype(DType.f32 if t.dtype.is_float else DType.i32)
    at = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), axis)
    if t.is_static:
        v = e.hlo("iota", [], wide, iota_dimension=at)
    else:
        v = e.hlo("dynamic_iota", [e.shape(t.shape)], wide, iota_dimension=at)
    return e.convert(v, wide, t.dtype)


def reshape(e: Emitter, x: ir.Value, t: TensorType, shape: Shape) -> ir.Value:
    """The same elements in `shape`."""
    to = t.with_shape(shape)
    if to == t:
        return x
    if t.is_static and to.is_static:
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


def _group(
    old: Shape, new: Shape, i: int, j: int, left: list[list[int]], right: list[list[int]]
) -> tuple[int, int]:
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
    return ir.ArrayAttr.get(
        [ir.ArrayAttr.get([ir.IntegerAttr.get(i64, a) for a in g]) for g in axes]
    )

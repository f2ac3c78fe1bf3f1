"""Lowering of ops that rearrange: broadcast, reshape, transpose, reverse, concatenate, iota."""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter, lower
from lstm_ir.backends.emit.mlir_types import array_attr
from lstm_ir.backends.emit.regions import empty, generic, picked, position, signed_back, signless, with_own_strides
from lstm_ir.backends.emit.shapes import fill, fills_itself, iota, number_filled, reshape
from lstm_ir.backends.emit.unaligned import to_insert
from lstm_ir.backends.lower.behind_loops import apart
from lstm_ir.backends.lower.own_memory import copied
from lstm_ir.backends.lower.spread import apart_from_spread
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.loop import Loop
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.reach import fixed
from lstm_ir.ir.types import DType, TensorType

_STORES = {"concatenate", "dynamic_update_slice", "scatter_add"}  # keep operands in memory


@lower("broadcast_in_dim")
def _broadcast(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    number = number_filled(n.values[0])
    users = () if e.within is None else e.within.users.get(n.values[0], ())
    if number is not None and any(_stores(e, u, n.values[0]) for u in users):
        return fill(e, number, n.types[0])
    axes = n.attrs["broadcast_dimensions"]
    x = apart_from_spread(e, x, n.inputs[0], n.types[0].shape, axes)
    return e.broadcast(x, n.inputs[0].type, n.types[0], axes)


def _stores(e: Emitter, user: Node, v: Value) -> bool:
    loop = Loop.of(user, until=True)
    if loop is None:
        return user.op.name in _STORES
    return v in (*loop.consts, *loop.xs) or (v in loop.init and not fills_itself(e))


@lower("reshape")
def _reshape(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    return reshape(e, x, n.inputs[0].type, n.types[0].shape)


@lower("transpose")
def _transpose(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    out = e.hlo("transpose", [x], n.types[0], permutation=array_attr(n.attrs["permutation"]))
    return e.barrier(out, n.types[0]) if _reduced_across(e, n) else out


def _reduced_across(e: Emitter, n: Node) -> bool:
    """Whether a reduction reads other elements in a row than memory has there, by way of elementwise ops and reshapes.

    IREE then reduces and transposes in one dispatch, in registers: for [T,B,32] from [B,32,T] it took 2.5 s to
    compile, and a tenth of that with the transposition before it.
    """
    order = n.attrs["permutation"]
    here = e.target is not None and e.target.kind == "cpu" and e.at_top and e.within is not None
    if not here or order[-1:] == (len(order) - 1,):
        return False
    assert e.within is not None
    users, found, walk = e.within.users, set[Node](), [n]
    while walk:
        m = walk.pop()
        for u in (u for v in m.values for u in users.get(v, ())):
            if u.op.name.startswith("reduce_"):
                return True
            if u not in found and (u.op.name == "reshape" or Trait.elementwise in u.op.traits):
                found.add(u)
                walk.append(u)
    return False


@lower("reverse")
def _reverse(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    t = n.types[0]
    v, kind = signless(e, x, t)
    if e.target is not None and t.is_static and e.within is not None and n.inputs[0] in fixed(e.within):
        return signed_back(e, _backwards(e, v, kind, n.attrs["dimensions"]), t)
    if e.target is not None and t.rank - 1 in n.attrs["dimensions"]:
        # IREE 3.13 fails on elements of every second place, say, read backwards in one dispatch
        v = e.barrier(v, kind)
    elif not t.is_static:
        v = with_own_strides(e, v, kind)
    out = e.hlo("reverse", [v], kind, dimensions=array_attr(n.attrs["dimensions"]))
    return signed_back(e, out, t)


def _backwards(e: Emitter, v: ir.Value, t: TensorType, axes: Sequence[int]) -> ir.Value:
    """Each element read from its place counted from the end.

    IREE 3.13 makes this of a reverse in functions, but not where weights are prepared; there it tiles the
    reverse, and reads outside of its operand.
    """

    def one(_: list[ir.Value]) -> ir.Value:
        at = [position(e, i) for i in range(t.rank)]
        for a in axes:
            at[a] = e.make("arith.subi", [e.size(t.shape[a] - 1), at[a]], [at[a].type]).result
        return picked(e, v, at)

    return generic(e, [], empty(e, t), [[f"d{i}" for i in range(t.rank)]], t.rank, one)


@lower("concatenate")
def _concatenate(e: Emitter, n: Node, xs: list[ir.Value]) -> ir.Value:
    if e.target is not None and _begins_as_another(e, n):
        # IREE 3.13 makes one tensor of the common beginning, and writes the other parts of both into it
        xs = [copied(e, xs[0], n.inputs[0].type), *xs[1:]]
    xs = apart(e, n.inputs, xs)
    if e.target is not None and (e.target.kind != "cpu" or not n.types[0].is_static):
        return _joined(e, n, xs)
    axis = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), n.attrs["dimension"])
    return e.hlo("concatenate", xs, n.types[0], dimension=axis)


def _begins_as_another(e: Emitter, n: Node) -> bool:
    """Whether a concatenation before this one has its type, its axis and its first part."""
    users = () if e.within is None else e.within.users.get(n.inputs[0], ())
    alike = (u for u in users if u.op is n.op and u.types == n.types and u.attrs == n.attrs)
    return next((u for u in alike if u.inputs[0] is n.inputs[0]), n) is not n


def _joined(e: Emitter, n: Node, xs: list[ir.Value]) -> ir.Value:
    """The parts written one after another into a new tensor.

    IREE 3.13 may make one dispatch of a concatenation, which picks the buffer to read from element by element.
    Lavapipe then reads all from the first one. On CPUs it does so where sizes are open, 1.7 to 3 times slower for
    [100,8,256], 1.2 times a ConvLSTM's call, and fails where a sum of products reads that ("affine.delinearize_index").
    """
    t, axis = n.types[0], n.attrs["dimension"]
    held = signless(e, xs[0], n.inputs[0].type)[1].dtype
    if held is DType.i1:  # two fills of booleans are one, whatever is written to them
        held = DType.i8
        xs = [e.convert(x, v.type, held) for x, v in zip(xs, n.inputs, strict=True)]
    whole = e.filled(0, t.with_dtype(held))
    begin: Dim = 0
    for x, v in zip(xs, n.inputs, strict=True):
        at = [begin if a == axis else 0 for a in range(t.rank)]
        if v.shape[axis] != 0:  # the verifier refuses an empty part at the end
            x = to_insert(e, signless(e, x, v.type)[0], v.type.with_dtype(held), t.with_dtype(held), at)
            whole = e.insert_slice(x, whole, at, list(v.shape))
        begin = dims.add(begin, v.shape[axis])
    if t.dtype is DType.i1:
        return e.convert(whole, t.with_dtype(held), t.dtype)
    return signed_back(e, whole, t)


@lower("iota")
def _iota(e: Emitter, n: Node) -> ir.Value:
    return iota(e, n.types[0], n.attrs["dimension"])

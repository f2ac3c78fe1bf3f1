"""Lowering of reductions, running sums and argmax. Two-byte floats are summed in float32."""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir

from lstm_ir.backends.emit.arithmetic import compare
from lstm_ir.backends.emit.emitter import Emitter, lower
from lstm_ir.backends.emit.for_loop import first_carried
from lstm_ir.backends.emit.mlir_types import array_attr, tensor
from lstm_ir.backends.emit.regions import empty, generic, picked, position, reduce, signed_back, signless  # fmt: skip
from lstm_ir.backends.emit.shapes import iota, reshape
from lstm_ir.backends.emit.unaligned import cut, to_insert, unaligned
from lstm_ir.backends.kernels.lowering import lower_row_sum
from lstm_ir.backends.lower.elementwise import compute_type
from lstm_ir.backends.lower.spread import alone
from lstm_ir.backends.lower.sums_of_products import as_a_sum
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Node
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive.reduce import bounds


@lower("reduce_sum")
def _sum(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    t = n.inputs[0].type
    if e.has_cpu_kernels and (done := lower_row_sum(e, n, x)) is not None:
        return done
    inside = compute_type(t)
    out = e.convert(as_a_sum(e, n, x, t, n.attrs["dimensions"]), t, inside.dtype)
    # One axis after another: IREE adds one by one, and the error of a sum grows with its length.
    for axis in sorted(n.attrs["dimensions"], reverse=True):
        out = _one_row(e, "add", out, inside, 0, (axis,))
        inside = inside.with_shape((*inside.shape[:axis], *inside.shape[axis + 1 :]))
    return e.convert(out, inside, t.dtype)


@lower("reduce_max", "reduce_min")
def _extreme(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    t = n.inputs[0].type
    least, largest = bounds(t.dtype)
    greatest = n.op.name == "reduce_max"
    word = "maximum" if greatest else "minimum"
    if t.dtype is DType.i1:
        word = "or" if greatest else "and"
    return _one_row(e, word, x, t, least if greatest else largest, n.attrs["dimensions"])


def _one_row(e: Emitter, op: str, x: ir.Value, t: TensorType, start: float, axes: Sequence[int]) -> ir.Value:
    """`reduce`, of a single row [1, T] as of [T].

    IREE 3.13 takes a softmax of a row [1, T] with T open for one of as many rows as there are numbers,
    and asks for 2^55 bytes of stack: the compiler refuses the module. Without the axis of size 1 it does not.
    """
    kept = t.with_shape(d for i, d in enumerate(t.shape) if i not in axes)
    if e.target is None or t.is_static or not kept.shape or any(d != 1 for d in kept.shape):
        return reduce(e, op, x, t, start, axes)
    row = t.with_shape(t.shape[i] for i in sorted(axes))
    found = reduce(e, op, reshape(e, x, t, row.shape), row, start, range(row.rank))
    return reshape(e, found, row.with_shape(()), kept.shape)


@lower("argmax")
def _argmax(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    """The least place that holds the largest value; a NaN is larger than all, as in NumPy."""
    t, axis = n.inputs[0].type, n.attrs["axis"]
    least, _ = bounds(t.dtype)
    word = "or" if t.dtype is DType.i1 else "maximum"
    top = reduce(e, word, x, t, least, (axis,))
    kept = n.types[0].with_dtype(t.dtype)
    others = [i for i in range(t.rank) if i != axis]
    spread = e.broadcast(alone(e, top, kept, t.shape, others), kept, t, others)
    flags, places = t.with_dtype(DType.i1), t.with_dtype(DType.i32)
    hit = compare(e, "EQ", x, spread, flags)
    if t.dtype.is_float:
        hit = e.hlo("or", [hit, compare(e, "NE", x, x, flags)], flags)
    most = e.full(2**31 - 1, places)
    found = e.hlo("select", [hit, iota(e, places, axis), most], places)
    return reduce(e, "minimum", found, places, 2**31 - 1, (axis,))


@lower("cumsum")
def _cumsum(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    """Sums over 2, 4, 8, ... neighbours: log2(size) additions of the tensor to itself, moved.

    Over one element there is nothing to add. Beside other names its loops would all begin with the same zeros, which
    IREE 3.13 puts into one buffer, and frees for each of them.
    """
    t, axis = n.inputs[0].type, n.attrs["axis"]
    if t.shape[axis] == 1:
        return e.full(0, t) if n.attrs["exclusive"] else x
    total = compute_type(t)
    v = e.convert(x, t, total.dtype)
    back = n.attrs["reverse"]
    if n.attrs["exclusive"]:
        v = moved(e, v, total, axis, e.size(1) if not total.is_static else 1, back)
    size = t.shape[axis]
    if not total.is_static:
        return e.convert(_doubling(e, v, total, axis, back), total, t.dtype)
    assert isinstance(size, int)
    by = 1
    while by < size:
        v = e.hlo("add", [v, moved(e, v, total, axis, by, back)], total)
        by *= 2
    return e.convert(v, total, t.dtype)


def moved(e: Emitter, x: ir.Value, t: TensorType, axis: int, by: int | ir.Value, back: bool) -> ir.Value:
    """Every element `by` places further along `axis` (or back), zeros where nothing came from."""
    if isinstance(by, ir.Value):
        return _moved_dynamic(e, x, t, axis, by, back)
    size = t.shape[axis]
    assert isinstance(size, int)
    by = min(by, size)
    begin = [by if k == axis else 0 for k in range(t.rank)]
    low, high = [0] * t.rank, [0] * t.rank
    low[axis], high[axis] = (-by, by) if back else (by, -by)
    if unaligned(e, t, begin):
        kept = t.resized(axis, size - by)
        x = cut(e, x, t, begin if back else [0] * t.rank, kept)
        x = x if back else to_insert(e, x, kept, t, begin)
        low[axis], high[axis] = max(low[axis], 0), max(high[axis], 0)
    return e.hlo(
        "pad", [x, e.constant(0, t.dtype)], t, edge_padding_low=array_attr(low),
        edge_padding_high=array_attr(high), interior_padding=array_attr([0] * t.rank),
    )  # fmt: skip


def _moved_dynamic(e: Emitter, x: ir.Value, t: TensorType, axis: int, by: ir.Value, back: bool) -> ir.Value:
    v, kind = signless(e, x, t)
    zero, _ = signless(e, e.constant(0, t.dtype), TensorType((), t.dtype))
    nothing, first, last = picked(e, zero, []), e.size(0), e.size(dims.add(t.shape[axis], -1))
    index = ir.IndexType.get()

    def body(_: list[ir.Value]) -> ir.Value:
        """The place is clamped before it is read."""
        at = [position(e, i) for i in range(t.rank)]
        source = e.make("arith.addi" if back else "arith.subi", [at[axis], by], [index]).result
        held = e.arith("minsi", source, last)
        held = e.arith("maxsi", held, first)
        inside = e.compare("eq", held, source)
        at[axis] = held
        found = picked(e, v, at)
        return e.make("arith.select", [inside, found, nothing], [found.type]).result

    places = [f"d{i}" for i in range(t.rank)]
    return signed_back(e, generic(e, [], empty(e, kind), [places], t.rank, body), t)


def _doubling(e: Emitter, x: ir.Value, t: TensorType, axis: int, back: bool) -> ir.Value:
    """scf.while over the distance, since log2 of a named size is not known.

    The first addition is made before the loop, in memory of its own (`first_carried`).
    """
    index = ir.IndexType.get()
    size = e.size(t.shape[axis])
    kinds = [index, tensor(t)]

    def added(v: ir.Value, by: ir.Value) -> ir.Value:
        return e.hlo("add", [v, moved(e, v, t, axis, by, back)], t)

    first = first_carried(e, t, lambda: added(x, e.size(1)))
    loop = e.make("scf.while", [e.size(2), first], kinds, regions=2)
    locs = [ir.Location.current] * 2
    before, after = (r.blocks.append(*kinds, arg_locs=locs) for r in loop.regions)
    with ir.InsertionPoint(before):
        e.make("scf.condition", [e.compare("slt", before.arguments[0], size), *before.arguments], [])
    with ir.InsertionPoint(after):
        by, v = after.arguments[0], e.tie(after.arguments[1], t)
        e.make("scf.yield", [e.arith("addi", by, by), added(v, by)], [])
    return e.tie(loop.results[1], t)

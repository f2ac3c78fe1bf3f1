"""Lowering of slice, pad, dynamic_slice and dynamic_update_slice, and of values held in a range."""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir

from lstm_ir.backends.emit.arithmetic import compare
from lstm_ir.backends.emit.emitter import Emitter, lower
from lstm_ir.backends.emit.mlir_types import array_attr, tensor
from lstm_ir.backends.emit.regions import empty, generic, picked, position, signed_back, signless
from lstm_ir.backends.emit.unaligned import to_cut, to_insert, unaligned
from lstm_ir.backends.lower.behind_loops import apart
from lstm_ir.backends.lower.own_memory import own
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive.window import padded

Values = list[ir.Value]


@lower("slice")
def _slice(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    t, to = n.inputs[0].type, n.types[0]
    low, high, by = (n.attrs[k] for k in ("start_indices", "limit_indices", "strides"))
    if unaligned(e, t, low):
        v, kind = signless(e, x, t)
        part = kind.with_shape([dims.add(b, dims.mul(a, -1)) for a, b in zip(low, high, strict=True)])
        v = e.extract_slice(to_cut(e, v, kind, low), kind, _values(e, low), part.shape, tensor(part))
        t, low, high = part.with_dtype(t.dtype), (0,) * t.rank, part.shape
        x = signed_back(e, v, t)
        if t == to:
            return x
    if t.is_static and to.is_static:
        return e.hlo(
            "slice", [x], to, start_indices=array_attr(low), limit_indices=array_attr(high),
            strides=array_attr(by),
        )  # fmt: skip
    v, kind = signless(e, x, t)
    if all(k == 1 for k in by):
        cut = e.extract_slice(v, kind, _values(e, low), to.shape, tensor(to.with_dtype(kind.dtype)))
        return signed_back(e, cut, to)
    bounds = [e.shape(s) for s in (low, high, by)]
    cut = e.hlo("real_dynamic_slice", [v, *bounds], to.with_dtype(kind.dtype))
    return signed_back(e, cut, to)


def _values(e: Emitter, places: Sequence[Dim]) -> list[ir.Value | int]:
    return [e.size(d) if isinstance(d, dims.Expr) else d for d in places]


@lower("pad")
def _pad(e: Emitter, n: Node, x: ir.Value, value: ir.Value) -> ir.Value:
    t, to = n.inputs[0].type, n.types[0]
    if 0 in t.shape:
        return e.broadcast(value, TensorType((), t.dtype), to, ())
    if t.dtype is not DType.i1 or e.target is None or not (any(n.attrs["interior_padding"]) or not to.is_static):
        return _padded(e, n, x, t, value, to)
    # A flat fill has no one-bit elements, and CUDA's code for spreading them loses the last of some sizes.
    fill = e.convert(value, TensorType((), t.dtype), DType.i8)
    out = _padded(e, n, e.convert(x, t, DType.i8), t.with_dtype(DType.i8), fill, to.with_dtype(DType.i8))
    return compare(e, "NE", out, e.full(0, to.with_dtype(DType.i8)), to)


def _padded(e: Emitter, n: Node, x: ir.Value, t: TensorType, value: ir.Value, to: TensorType) -> ir.Value:
    low, high, between = (n.attrs[k] for k in ("edge_padding_low", "edge_padding_high", "interior_padding"))
    if any(between) and not (e.target is None and t.is_static):
        # IREE 3.13 makes one pad of two with one value, without what is between the elements.
        v, kind = signless(e, x, t)
        fill, _ = signless(e, value, TensorType((), t.dtype))
        v, kind = _spread(e, v, kind, fill, between)
        t = t.with_shape(kind.shape)
        x, between = signed_back(e, v, t), (0,) * t.rank
    cut_inside = unaligned(e, t, [max(-d, 0) if isinstance(d, int) else 0 for d in low])
    if t.is_static and to.is_static and not _shared(e, n.inputs[1]) and not cut_inside:
        x = to_insert(e, x, t, to, low)
        return e.hlo(
            "pad", [x, value], to, edge_padding_low=array_attr(low),
            edge_padding_high=array_attr(high), interior_padding=array_attr(between),
        )  # fmt: skip
    return _edges(e, n, x, t, value, to, low, high)


def _edges(
    e: Emitter, n: Node, x: ir.Value, t: TensorType, value: ir.Value, to: TensorType,
    low: tuple[Dim, ...], high: tuple[Dim, ...],
) -> ir.Value:  # fmt: skip
    """With `value` before and after the elements.

    An axis that is cut at one end and filled at the other may lose all its elements: it is cut last.
    """
    v, kind = signless(e, x, t)
    fill, _ = signless(e, value, TensorType((), t.dtype))
    cuts = [(_below(a), _below(b)) for a, b in zip(low, high, strict=True)]
    first, last = list(cuts), list(cuts)
    for k, (d, (a, b), lo, hi) in enumerate(zip(t.shape, cuts, low, high, strict=True)):
        late = ((a and hi != -b) or (b and lo != -a)) and dims.at_least(dims.add(d, -a - b), 0) is not True
        (first if late else last)[k] = 0, 0
    v, kind = _cut(e, v, kind, first)
    starts = [dims.add(lo, a) for lo, (a, _) in zip(low, cuts, strict=True)]
    ends = [dims.add(hi, b) for hi, (_, b) in zip(high, cuts, strict=True)]
    sizes = zip(kind.shape, starts, ends, strict=True)
    result = kind.with_shape([dims.add(dims.add(d, lo), hi) for d, lo, hi in sizes])
    if kind != result:
        v = to_insert(e, v, kind, result, starts)
        v = e.insert_slice(v, room(e, n, fill, result), starts, kind.shape)
    v, _ = _cut(e, v, result, last)
    return signed_back(e, v, to)


def _cut(e: Emitter, v: ir.Value, t: TensorType, off: list[tuple[int, int]]) -> tuple[ir.Value, TensorType]:
    """Without so many elements at the ends of each axis."""
    if any(a or b for a, b in off):
        sizes = [dims.add(d, -a - b) for d, (a, b) in zip(t.shape, off, strict=True)]
        starts = [a for a, _ in off]
        v, t = to_cut(e, v, t, starts), t.with_shape(sizes)
        v = e.extract_slice(v, t, starts, sizes, tensor(t))
    return v, t


def _below(d: Dim) -> int:
    return max(-d, 0) if isinstance(d, int) else 0


def _shared(e: Emitter, value: Value) -> bool:
    """Whether two fills with `value` become one that both are written into.

    IREE 3.13 fills eight bytes that are not 0 by a dispatch, which it neither repeats nor copies.
    """
    if e.target is None or value.dtype.bits < 64:
        return False
    return value.op != "constant" or value.node.attrs["value"].array.tobytes() != bytes(8)


def room(e: Emitter, n: Node, fill: ir.Value, t: TensorType) -> ir.Value:
    """A tensor of the number that `n` pads with, a buffer of its own in IREE.

    Written to, a broadcast would be shared: IREE merges two of one size, and one's writes show in
    the other.
    """
    if e.target is None:
        return e.broadcast(fill, TensorType((), t.dtype), t, ())
    value = n.inputs[1]
    if _shared(e, value) and value.op == "constant":
        number: float = value.node.attrs["value"].array.item()
        if e.depth:
            return e.filled(number, t, own=True)
        assert e.anchor is not None
        with ir.InsertionPoint(e.anchor):  # what hides it stands first: see own_memory.py
            return e.filled(number, t, own=True)
    one = picked(e, fill, [])
    one = e.hidden(one) if _shared(e, value) else one
    sizes = [e.size(d) for d in t.shape if not isinstance(d, int)]
    return e.make("flow.tensor.splat", [one, *sizes], [tensor(t)]).result


def _spread(
    e: Emitter, x: ir.Value, t: TensorType, fill: ir.Value, between: tuple[int, ...]
) -> tuple[ir.Value, TensorType]:
    """out[i] = x[i / (between + 1)] where that is a whole number, else fill."""
    to = t.with_shape(padded(d, 0, 0, k) for d, k in zip(t.shape, between, strict=True))
    i1 = ir.IntegerType.get_signless(1)
    steps = [e.size(k + 1) for k in between]
    default, zero = picked(e, fill, []), e.size(0)
    x = _apart(e, x, t)

    def body(_: Values) -> ir.Value:
        at = []
        exact = e.make("arith.constant", [], [i1], {"value": ir.IntegerAttr.get(i1, 1)}).result
        for axis, by in enumerate(steps):
            place = position(e, axis)
            rest = e.arith("remsi", place, by)
            exact = e.make("arith.andi", [exact, e.compare("eq", rest, zero)], [i1]).result
            at.append(e.arith("divsi", place, by))
        found = picked(e, x, at)
        return e.make("arith.select", [exact, found, default], [found.type]).result

    places = [f"d{i}" for i in range(to.rank)]
    return _apart(e, generic(e, [], empty(e, to), [places], to.rank, body), to), to


def _apart(e: Emitter, v: ir.Value, t: TensorType) -> ir.Value:
    """`v`, in a dispatch of its own: a slice or a pad that is fused with `_spread` does not compile."""
    return v if e.target is None else e.barrier(v, t)


@lower("dynamic_slice")
def _dynamic_slice(e: Emitter, n: Node, x: ir.Value, starts: Values) -> ir.Value:
    t, to = n.inputs[0].type, n.types[0]
    moving = [0 if a == b else s for a, b, s in zip(t.shape, to.shape, starts, strict=True)]
    if to.is_static and not unaligned(e, t, moving):
        return e.hlo("dynamic_slice", [x, *starts], to, slice_sizes=array_attr(to.shape))  # type: ignore[arg-type]
    v, kind = signless(e, x, t)
    at = _inside(e, starts, t, to)
    v = to_cut(e, v, kind, moving)
    cut = e.extract_slice(v, kind, at, to.shape, tensor(to.with_dtype(kind.dtype)))
    return signed_back(e, cut, to)


@lower("dynamic_update_slice")
def _update(e: Emitter, n: Node, x: ir.Value, update: ir.Value, starts: Values) -> ir.Value:
    t, window = n.inputs[0].type, n.inputs[1].type
    x, update = apart(e, n.inputs[:2], [own(e, n, n.inputs[0], x, t), update])
    moving = [0 if a == b else s for a, b, s in zip(t.shape, window.shape, starts, strict=True)]
    update = to_insert(e, update, window, t, moving)
    if t.is_static and window.is_static:
        return e.hlo("dynamic_update_slice", [x, update, *starts], t)
    v, _ = signless(e, x, t)
    u, _ = signless(e, update, window)
    return signed_back(e, e.insert_slice(u, v, _inside(e, starts, t, window), window.shape), t)


def _inside(e: Emitter, starts: Values, t: TensorType, window: TensorType) -> Values:
    """Run-time starts as indices, moved so that the window lies inside."""
    out = []
    for start, size, width in zip(starts, t.shape, window.shape, strict=True):
        last = e.size(dims.add(size, dims.mul(width, -1)))
        most = e.arith("minsi", e.extract(start), last)
        out.append(e.arith("maxsi", most, e.size(0)))
    return out

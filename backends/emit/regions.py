"""Ops with a region: StableHLO's `reduce`, and `linalg.generic` for what StableHLO cannot say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.emit.mlir_types import SIGNED, UNSIGNED, array_attr, element, tensor
from lstm_ir.ir.types import DType, TensorType

Values = list[ir.Value]


def reduce(e: Emitter, op: str, x: ir.Value, t: TensorType, start: float, axes: Sequence[int]) -> ir.Value:
    """stablehlo.reduce by the binary op `op` over `axes`."""
    kept = t.with_shape(d for i, d in enumerate(t.shape) if i not in axes)
    if 0 in t.shape:  # GPU drivers refuse to read an empty buffer
        return e.filled(start, kept)
    if e.is_cuda_or_hip and op in ("maximum", "minimum") and t.dtype.is_int:
        if t.dtype.bits == 8:  # AMD's backend takes none: "LLVM ERROR"
            found = reduce(e, op, e.convert(x, t, DType.i32), t.with_dtype(DType.i32), start, axes)
            return e.convert(found, kept.with_dtype(DType.i32), t.dtype)
        if t.dtype in UNSIGNED:
            return _as_unsigned(e, op, x, t, start, axes)
    scalar = TensorType((), t.dtype)
    init = e.constant(start, t.dtype)
    attrs = {"dimensions": array_attr(axes)}
    made = e.make("stablehlo.reduce", [x, init], [tensor(kept)], attrs, regions=1)
    one = tensor(scalar)
    block = made.regions[0].blocks.append(one, one, arg_locs=[ir.Location.current] * 2)
    with ir.InsertionPoint(block):
        result = e.hlo(op, list(block.arguments), scalar)
        e.make("stablehlo.return", [result], [])
    return made.result


def _as_unsigned(e: Emitter, op: str, x: ir.Value, t: TensorType, start: float, axes: Sequence[int]) -> ir.Value:
    """An extreme of signed integers, as that of unsigned ones in the same order: the first bit is turned round.

    IREE begins each thread's extreme with the bounds of 64 signed bits, cut to the width. Of 32 bits these
    are 0 and -1, the bounds of unsigned integers.
    """
    unsigned = UNSIGNED[t.dtype]
    bit = 1 << (t.dtype.bits - 1)

    def turned(v: ir.Value, of: TensorType) -> ir.Value:
        return e.hlo("xor", [v, e.full(bit, of)], of)

    wide = t.with_dtype(unsigned)
    first = (int(start) + bit) % (2 * bit)
    found = reduce(e, op, turned(e.hlo("bitcast_convert", [x], wide), wide), wide, first, axes)
    kept = wide.with_shape(d for i, d in enumerate(t.shape) if i not in axes)
    return e.hlo("bitcast_convert", [turned(found, kept)], kept.with_dtype(t.dtype))


def affine(dims: int, results: Sequence[str]) -> ir.Attribute:
    """affine_map<(d0, ...) -> (results)>."""
    left = ", ".join(f"d{i}" for i in range(dims))
    return ir.Attribute.parse(f"affine_map<({left}) -> ({', '.join(results)})>")


def generic(
    e: Emitter,
    inputs: Sequence[ir.Value],
    out: ir.Value,
    maps: Sequence[Sequence[str]],
    loops: int,
    body: Callable[[Values], ir.Value],
    summed: Sequence[int] = (),
) -> ir.Value:
    """linalg.generic over `loops` indices, those in `summed` reductions; maps: inputs, then out."""
    words = ["reduction" if i in summed else "parallel" for i in range(loops)]
    kinds = ", ".join(f"#linalg.iterator_type<{w}>" for w in words)
    attrs = {
        "indexing_maps": ir.ArrayAttr.get([affine(loops, m) for m in maps]),
        "iterator_types": ir.Attribute.parse(f"[{kinds}]"),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
    }
    made = e.make("linalg.generic", [*inputs, out], [out.type], attrs, regions=1)
    ones = [ir.RankedTensorType(v.type).element_type for v in (*inputs, out)]
    block = made.regions[0].blocks.append(*ones, arg_locs=[ir.Location.current] * len(ones))
    with ir.InsertionPoint(block):
        e.make("linalg.yield", [body(list(block.arguments))], [])
    return made.result


def signless(e: Emitter, v: ir.Value, t: TensorType) -> tuple[ir.Value, TensorType]:
    """Unsigned elements as the signed type of their width.

    `tensor` and `linalg` ops know no sign.
    """
    twin = SIGNED.get(t.dtype)
    if twin is None:
        return v, t
    as_signed = t.with_dtype(twin)
    return e.hlo("bitcast_convert", [v], as_signed), as_signed


def signed_back(e: Emitter, v: ir.Value, t: TensorType) -> ir.Value:
    """A value made over `signless` operands as type `t` again."""
    same = ir.RankedTensorType(v.type).element_type == element(t.dtype)
    return v if same else e.hlo("bitcast_convert", [v], t)


def empty(e: Emitter, t: TensorType) -> ir.Value:
    """tensor.empty."""
    sizes = [e.size(d) for d in t.shape if not isinstance(d, int)]
    return e.make("tensor.empty", sizes, [tensor(t)]).result


def position(e: Emitter, loop: int) -> ir.Value:
    """linalg.index, inside a body of `generic`."""
    attrs = {"dim": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), loop)}
    return e.make("linalg.index", [], [ir.IndexType.get()], attrs).result


def picked(e: Emitter, x: ir.Value, at: Sequence[ir.Value]) -> ir.Value:
    """tensor.extract of one element."""
    return e.make("tensor.extract", [x, *at], [ir.RankedTensorType(x.type).element_type]).result


_CUTS = ("stablehlo.slice", "stablehlo.dynamic_slice", "tensor.extract_slice")
_SAME_MEMORY = ("stablehlo.reshape", "flow.tensor.tie_shape", "flow.tensor.reshape", "stablehlo.bitcast_convert")


def with_own_strides(e: Emitter, v: ir.Value, t: TensorType) -> ir.Value:
    """`v`, to be picked from at any place of a tensor of named sizes: in its own memory if it is a slice.

    In vectors, CUDA's and HIP's, IREE 3.13 counts places by the slice's sizes, and reads there in what was cut.
    """
    if not e.is_cuda_or_hip:
        return v
    made = v.owner
    while isinstance(made, ir.Operation | ir.OpView) and made.name in _SAME_MEMORY:
        made = made.operands[0].owner
    cut = isinstance(made, ir.Operation | ir.OpView) and made.name in _CUTS
    return e.barrier(v, t) if cut else v

"""Lowering of dot_general: sums of two-byte floats are in float32."""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir

from lstm_ir.backends.emit.conversion import apart
from lstm_ir.backends.emit.emitter import Emitter, lower
from lstm_ir.backends.emit.regions import generic, signed_back, signless
from lstm_ir.backends.emit.shapes import reshape, transpose
from lstm_ir.backends.kernels import lowering as kernels
from lstm_ir.backends.lower.beside_products import gives_several, meets_a_mask, meets_columns, of_columns
from lstm_ir.backends.lower.elementwise import compute_type
from lstm_ir.backends.lower.tuned import CUT_ROWS
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.types import Shape, TensorType
from lstm_ir.ops.primitive.linear import free_axes

Ints = tuple[int, ...]
_LEAVES = {"parameter", "weight", "constant"}


@lower("dot_general")
def _dot(e: Emitter, n: Node, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    a, b = n.inputs[0].type, n.inputs[1].type
    axes = [n.attrs[f"{side}_{what}_dimensions"] for what in ("batching", "contracting") for side in ("lhs", "rhs")]
    to = n.types[0]
    total = compute_type(to)
    if e.has_cpu_kernels:
        for by_kernel in (kernels.lower_product, kernels.lower_outer_sum, kernels.lower_batched_product):
            done = by_kernel(e, n, lhs, rhs)
            if done is not None:
                return done
    if 0 in (a.rank, b.rank):
        return _by_a_number(e, lhs, a, rhs, b, to)
    if e.is_spirv:  # see emit/half.py
        lhs, rhs = (apart(e, v, x) for v, x in zip((lhs, rhs), n.inputs, strict=True))
        lhs, rhs = e.convert(lhs, a, total.dtype), e.convert(rhs, b, total.dtype)
        a, b = a.with_dtype(total.dtype), b.with_dtype(total.dtype)
    if axes[0] and e.is_cuda_or_hip and total.dtype is not to.dtype:
        # Of batched products by tensor cores IREE 3.13 gets some wrong: 5 of 60 of f16 in test_batched_products.py, on
        # an H200. bf16 and HIP are taken to be the same.
        lhs, rhs = (e.opaque(e.convert(v, t, total.dtype), t.with_dtype(total.dtype)) for v, t in ((lhs, a), (rhs, b)))
        a, b = a.with_dtype(total.dtype), b.with_dtype(total.dtype)
    elif axes[0] and e.target is not None:
        lhs, rhs = (_made(e, v, t, x) for v, t, x in zip((lhs, rhs), (a, b), n.inputs, strict=True))
    elif e.target is not None and e.target.kind == "cpu":
        lhs, rhs = (_cut(e, v, t, x) for v, t, x in zip((lhs, rhs), (a, b), n.inputs, strict=True))
    if e.target is not None and e.target.kind == "cpu":
        if _rows_join_batches(a, axes[0], axes[2]):
            lhs, a, axes[0], axes[2] = _batches_first(e, lhs, a, axes[0], axes[2])
        if not b.is_static and _rows_join_batches(b, axes[1], axes[3]):  # of fixed sizes it is right
            rhs, b, axes[1], axes[3] = _batches_first(e, rhs, b, axes[1], axes[3])
    if 0 in a.shape or 0 in b.shape:
        out = e.full(0, total)
    elif a.is_static and b.is_static:
        out = e.hlo("dot_general", [lhs, rhs], total, dot_dimension_numbers=_numbers(*axes))
    else:
        out = _dynamic(e, lhs, a, rhs, b, axes, total)
    # What is fused with a batched product: IREE 3.13 packs it in vectors of 32 KiB where sizes are named
    alone = axes[0] and (not total.is_static or _tiles_alike(a, axes[0], axes[2]))
    if (
        e.target is not None
        and e.target.kind == "cpu"
        and (alone or meets_a_mask(e, n) or meets_columns(e, n) or gives_several(e, n))
    ):
        out = e.barrier(out, total)
    return e.convert(out, total, to.dtype)


def _by_a_number(e: Emitter, lhs: ir.Value, a: TensorType, rhs: ir.Value, b: TensorType, to: TensorType) -> ir.Value:
    """A product with a scalar: nothing is summed.

    IREE 3.13 refuses two products of half floats with one scalar: what widens it is left over.
    """
    wide = [e.broadcast(v, t, to, tuple(range(t.rank))) for v, t in ((lhs, a), (rhs, b))]
    return e.hlo("multiply", wide, to)


def _tiles_alike(a: TensorType, batching: Ints, contracting: Ints) -> bool:
    """Whether the rows of all batches fill as many tiles as one matrix of them, though no batch fills its own.

    An operand of what is fused with the product may have its axes joined to [batches x rows, columns]. IREE 3.13 packs
    it so for the product if the tiles are as many: two batches of 3 rows, in tiles of 4, are two either way.
    """
    batches = dims.product(tuple(a.shape[i] for i in batching))
    rows = dims.product(tuple(a.shape[i] for i in free_axes(a.rank, batching, contracting)))
    assert isinstance(batches, int)
    assert isinstance(rows, int)
    return any(rows % t and batches * -(-rows // t) == -(-batches * rows // t) for t in (2, 4, 8, 16, 32))


def _rows_join_batches(a: TensorType, batching: Ints, contracting: Ints) -> bool:
    """Whether IREE 3.13 packs an operand [contracting, batches, rows] as one matrix of batches x rows.

    It joins their axes where more than three have to become three, and takes packed rows of one batch for those of
    another if the tiles are as many, or if a size is named.
    """
    free = free_axes(a.rank, batching, contracting)
    ordered = sorted(contracting) + sorted(batching) + list(free) == list(range(a.rank))
    if not batching or a.rank <= 3 or not ordered or 0 in a.shape:
        return False
    return not a.is_static or _tiles_alike(a, batching, contracting)


def _batches_first(
    e: Emitter, v: ir.Value, t: TensorType, batching: Ints, contracting: Ints
) -> tuple[ir.Value, TensorType, Ints, Ints]:
    """An operand with its batches in front, made before the product; its type, and where its axes are now."""
    order = (*batching, *contracting, *free_axes(t.rank, batching, contracting))
    turned, to = transpose(e, v, t, order)
    count = len(batching)
    return e.barrier(turned, to), to, tuple(range(count)), tuple(range(count, count + len(contracting)))


def _made(e: Emitter, v: ir.Value, t: TensorType, operand: Value) -> ir.Value:
    """An operand of type t of a batched product that is made before it, unless it is a leaf.

    IREE 3.13 fuses what makes it into the packing; a select among that reads its condition, one byte
    per element, at the wrong place in every batch but the first. What a step carries is no leaf where the step
    before stands in the same body.
    """
    carried = operand.op == "parameter" and not isinstance(v, ir.BlockArgument)
    return e.barrier(v, t) if carried or operand.op not in _LEAVES else v


def _cut(e: Emitter, v: ir.Value, t: TensorType, operand: Value) -> ir.Value:
    """An operand of type t of a product, made before it where it is columns of wider rows.

    IREE 3.13 packs such an operand in one dispatch with the product: 1000 rows take it 3 s to compile in place of 0.1,
    and up to 20 s. The copy costs less than it spares: 250 rows take 0.16 ms in place of 0.29, 1000 rows 0.55 of 0.64.
    """
    rows = dims.product(t.shape[:-1])
    few = isinstance(rows, int) and rows < CUT_ROWS
    return e.barrier(v, t) if of_columns(operand.node) and not few else v


def _numbers(lb: Ints, rb: Ints, lc: Ints, rc: Ints) -> ir.Attribute:
    parts = [
        f"{side}_{what}_dimensions = [{', '.join(map(str, axes))}]"
        for side, what, axes in (
            ("lhs", "batching", lb), ("rhs", "batching", rb),
            ("lhs", "contracting", lc), ("rhs", "contracting", rc),
        ) if axes
    ]  # fmt: skip
    return ir.Attribute.parse(f"#stablehlo.dot<{', '.join(parts)}>")


def _dynamic(
    e: Emitter, lhs: ir.Value, a: TensorType, rhs: ir.Value, b: TensorType,
    axes: Sequence[Ints], total: TensorType,
) -> ir.Value:  # fmt: skip
    """Axes collapsed to one per kind: IREE takes named sizes in products of matrices only."""
    lb, rb, lc, rc = axes
    x, xt, x_last = _matrix(e, lhs, a, lb, lc)
    y, yt, y_last = _matrix(e, rhs, b, rb, rc)
    rows, columns = xt.shape[1 if x_last else 2], yt.shape[1 if y_last else 2]
    inner = xt.shape[2 if x_last else 1]
    summed = not isinstance(inner, int)
    if not lb and 1 not in (rows, columns, inner):  # IREE fails on a product with a size of 1
        x, y = reshape(e, x, xt, xt.shape[1:]), reshape(e, y, yt, yt.shape[1:])
        flat = total.with_shape((rows, columns))
        if summed or _multiple(rows):
            x = _alone(e, x, xt.with_shape(xt.shape[1:]))
        if summed or _multiple(columns):
            y = _alone(e, y, yt.with_shape(yt.shape[1:]))
        numbers = _numbers((), (), (int(x_last),), (int(y_last),))
        v = e.hlo("dot_general", [x, y], flat, dot_dimension_numbers=numbers)
    else:
        flat = total.with_shape((xt.shape[0], rows, columns))
        if summed and not lb:
            x, y = _alone(e, x, xt), _alone(e, y, yt)
        v = _batched(e, x, xt, x_last, y, yt, y_last, flat)
    return reshape(e, v, flat, total.shape)


def _multiple(size: Dim) -> bool:
    """Whether a size is a multiple of names: 16*B, as [B,16,I] gives with its rows side by side."""
    return isinstance(size, dims.Expr) and any(k != 1 for _, k in size.terms)


def _alone(e: Emitter, v: ir.Value, t: TensorType) -> ir.Value:
    """A matrix that is made before the product: fused into the packing of a product that sums over a
    named size, or has 8*B rows, IREE 3.13 fails ("no basis element may be statically non-positive")."""
    return e.barrier(v, t)


def _matrix(
    e: Emitter, v: ir.Value, t: TensorType, batching: Ints, contracting: Ints
) -> tuple[ir.Value, TensorType, bool]:
    """As [batch, free, k], or [batch, k, free] where that needs no transposition; and which."""
    free = free_axes(t.rank, batching, contracting)
    natural = tuple(range(t.rank))
    last = (*batching, *contracting, *free) != natural or not contracting
    if last and (*batching, *free, *contracting) != natural:
        v, t = transpose(e, v, t, (*batching, *free, *contracting))
    parts = (batching, free, contracting) if last else (batching, contracting, free)
    sizes, start = [], 0
    for part in parts:
        sizes.append(dims.product(t.shape[start : start + len(part)]))
        start += len(part)
    return reshape(e, v, t, tuple(sizes)), t.with_shape(sizes), last


def _batched(
    e: Emitter, x: ir.Value, xt: TensorType, x_last: bool, y: ir.Value, yt: TensorType,
    y_last: bool, to: TensorType,
) -> ir.Value:  # fmt: skip
    """linalg.generic: a batched product with named sizes is refused as StableHLO."""
    x, y = e.convert(x, xt, to.dtype), e.convert(y, yt, to.dtype)
    x, _ = signless(e, x, xt.with_dtype(to.dtype))
    y, _ = signless(e, y, yt.with_dtype(to.dtype))
    x, y = _told_apart(e, x, xt.shape), _told_apart(e, y, yt.shape)
    zero, _ = signless(e, e.full(0, to), to)
    mul, add = ("arith.mulf", "arith.addf") if to.dtype.is_float else ("arith.muli", "arith.addi")

    def body(args: list[ir.Value]) -> ir.Value:
        p = e.make(mul, args[:2], [args[0].type]).result
        return e.make(add, [args[2], p], [args[2].type]).result

    left = ["d0", "d1", "d3"] if x_last else ["d0", "d3", "d1"]
    right = ["d0", "d2", "d3"] if y_last else ["d0", "d3", "d2"]
    maps = [left, right, ["d0", "d1", "d2"]]
    return signed_back(e, generic(e, [x, y], zero, maps, 4, body, summed=(3,)), to)


def _told_apart(e: Emitter, v: ir.Value, shape: Shape) -> ir.Value:
    """`v`, of whose named sizes no two are known to be one, if there are others beside.

    IREE 3.13 passes equal sizes to a dispatch once, and then takes one size for another where it
    counts the workgroups that pack an operand such as [T,T,B]: too few for some T and B, and for
    B = 0 one that divides by it.
    """
    named = [d for d in shape if not isinstance(d, int)]
    if e.target is None or len(set(named)) in (1, len(named)) or not named:
        return v
    assert e.anchor is not None
    sizes: list[ir.Value] = []
    for k, d in enumerate(named):
        size = e.size(d)
        if d in named[:k]:
            with ir.InsertionPoint(e.anchor):
                size = e.hidden(size)
        sizes.append(size)
    return e.make("flow.tensor.tie_shape", [v, *sizes], [v.type]).result

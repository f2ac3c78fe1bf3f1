"""Products of tensors: `dot_general`, and NumPy's `@` in terms of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir.ir import options
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.location import here
from lstm_ir.ir.opdef import Attr, define, need, need_equal
from lstm_ir.ir.pullback import Cts, only
from lstm_ir.ir.types import DType, TensorType
from lstm_ir.ops.primitive.broadcast import as_values, broadcast_to, common_shape
from lstm_ir.ops.primitive.shape import need_axes, transpose

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]


def free_axes(rank: int, batching: Ints, contracting: Ints) -> Ints:
    """The axes that are neither."""
    return tuple(a for a in range(rank) if a not in batching and a not in contracting)


def _dot_types(
    lhs: TensorType,
    rhs: TensorType,
    *,
    lhs_batching_dimensions: Ints,
    rhs_batching_dimensions: Ints,
    lhs_contracting_dimensions: Ints,
    rhs_contracting_dimensions: Ints,
) -> TensorType:
    need(lhs.dtype is rhs.dtype, f"lhs is {lhs.dtype}, rhs {rhs.dtype}; convert one of them")
    need(lhs.dtype is not DType.i1, "takes numbers, got i1")
    need_axes(lhs, (*lhs_batching_dimensions, *lhs_contracting_dimensions))
    need_axes(rhs, (*rhs_batching_dimensions, *rhs_contracting_dimensions))
    batching = _pairs("batching", lhs_batching_dimensions, rhs_batching_dimensions)
    contracting = _pairs("contracting", lhs_contracting_dimensions, rhs_contracting_dimensions)
    for what, pairs in (("batching", batching), ("contracting", contracting)):
        for a, b in pairs:
            m, n = lhs.shape[a], rhs.shape[b]
            need_equal(m, n, f"{what} sizes differ: {m} (lhs axis {a}) and {n} (rhs axis {b})")
    rows = free_axes(lhs.rank, lhs_batching_dimensions, lhs_contracting_dimensions)
    columns = free_axes(rhs.rank, rhs_batching_dimensions, rhs_contracting_dimensions)
    left = [lhs.shape[a] for a in (*lhs_batching_dimensions, *rows)]
    return TensorType((*left, *(rhs.shape[a] for a in columns)), lhs.dtype)


def _pairs(what: str, lhs: Ints, rhs: Ints) -> list[tuple[int, int]]:
    need(len(lhs) == len(rhs), f"{len(lhs)} {what} axes of lhs, {len(rhs)} of rhs")
    return list(zip(lhs, rhs, strict=True))


def _dot_numpy(
    lhs: Array,
    rhs: Array,
    *,
    lhs_batching_dimensions: Ints,
    rhs_batching_dimensions: Ints,
    lhs_contracting_dimensions: Ints,
    rhs_contracting_dimensions: Ints,
) -> Array:
    """Batches of [rows, k] @ [k, columns]; two-byte floats are summed in float32."""
    kind = lhs.dtype
    if kind.itemsize == 2:
        lhs, rhs = lhs.astype(np.float32), rhs.astype(np.float32)
    lb, lc, rb, rc = (
        lhs_batching_dimensions, lhs_contracting_dimensions,
        rhs_batching_dimensions, rhs_contracting_dimensions,
    )  # fmt: skip
    rows, columns = free_axes(lhs.ndim, lb, lc), free_axes(rhs.ndim, rb, rc)
    batch = [lhs.shape[a] for a in lb]
    k = int(np.prod([lhs.shape[a] for a in lc], dtype=np.int64))
    m, n = [lhs.shape[a] for a in rows], [rhs.shape[a] for a in columns]
    many, high, wide = (int(np.prod(s, dtype=np.int64)) for s in (batch, m, n))
    a = lhs.transpose(*lb, *rows, *lc).reshape(many, high, k)
    b = rhs.transpose(*rb, *rc, *columns).reshape(many, k, wide)
    return np.asarray(np.matmul(a, b).reshape((*batch, *m, *n)).astype(kind))


def _dot_vjp(node: Node, cts: Cts) -> Cts:
    """d lhs = ct . rhs over rhs's free axes, d rhs = ct . lhs over lhs's; axes in their order."""
    ct, (a, b), attrs = only(cts), node.inputs, node.attrs
    lb, rb = attrs["lhs_batching_dimensions"], attrs["rhs_batching_dimensions"]
    lc, rc = attrs["lhs_contracting_dimensions"], attrs["rhs_contracting_dimensions"]
    rows = a.rank - len(lb) - len(lc)
    lhs_free = tuple(range(len(lb), len(lb) + rows))
    rhs_free = tuple(range(len(lb) + rows, ct.rank))
    return (
        _dot_operand_vjp(ct, b, a.rank, (lb, lc), (rb, rc), rhs_free),
        _dot_operand_vjp(ct, a, b.rank, (rb, rc), (lb, lc), lhs_free),
    )


def _dot_operand_vjp(
    ct: Value, other: Value, rank: int, mine: tuple[Ints, Ints], its: tuple[Ints, Ints], summed: Ints
) -> Value:
    """The gradient of one operand: `summed` are ct's axes that came from the other one."""
    (batch, contracted), (its_batch, its_contracted) = mine, its
    its_free = tuple(a for a in range(other.rank) if a not in its_batch and a not in its_contracted)
    lead = tuple(range(len(batch)))
    out = dot_general(ct, other, (summed, its_free), (lead, its_batch))
    # out has batch, my free axes, then its contracting axes in ascending order
    free = [a for a in range(rank) if a not in batch and a not in contracted]
    order = sorted(range(len(its_contracted)), key=lambda i: its_contracted[i])
    have = [*batch, *free, *(contracted[i] for i in order)]
    return transpose(out, tuple(have.index(a) for a in range(rank)))


DOT_GENERAL = define(
    "dot_general", "lhs rhs",
    attrs={
        "lhs_batching_dimensions": Attr("ints", ()),
        "rhs_batching_dimensions": Attr("ints", ()),
        "lhs_contracting_dimensions": Attr("ints", ()),
        "rhs_contracting_dimensions": Attr("ints", ()),
    },
    types=_dot_types, numpy=_dot_numpy, vjp=_dot_vjp,
)  # fmt: skip


def dot_general(lhs: Any, rhs: Any, contracting: tuple[Ints, Ints], batching: tuple[Ints, Ints] = ((), ())) -> Value:
    """Sum over the contracting axes (lhs, rhs): [batching..., lhs free..., rhs free...]."""
    a, b = as_values("dot_general", lhs, rhs)
    summed_a, summed_b = options.pair("dot_general", "contracting", contracting)
    batch_a, batch_b = options.pair("dot_general", "batching", batching)
    node = make(
        DOT_GENERAL, a, b, lhs_batching_dimensions=batch_a, rhs_batching_dimensions=batch_b,
        lhs_contracting_dimensions=summed_a, rhs_contracting_dimensions=summed_b,
    )  # fmt: skip
    return node.values[0]


def dot(lhs: Any, rhs: Any) -> Value:
    """[M, K] x [K, N] -> [M, N]."""
    a, b = as_values("dot_general", lhs, rhs)
    if a.rank != 2 or b.rank != 2:
        problem = f"dot takes two matrices, got rank {a.rank} and {b.rank}; see matmul"
        raise IRError(message("dot_general", problem, [("lhs", a.type), ("rhs", b.type)], here()))
    return dot_general(a, b, ((1,), (0,)))


def matmul(lhs: Any, rhs: Any) -> Value:
    """NumPy's `@`: [..., M, K] x [..., K, N]; leading axes broadcast, vectors are rows, columns."""
    a, b = as_values("dot_general", lhs, rhs)
    if a.rank == 0 or b.rank == 0:
        problem = "@ takes vectors and matrices, got a scalar; use *"
        raise IRError(message("dot_general", problem, [("lhs", a.type), ("rhs", b.type)], here()))
    last, first = a.rank - 1, max(b.rank - 2, 0)
    if isinstance(a.shape[-1], int) and isinstance(b.shape[first], int) and a.shape[-1] != b.shape[first]:
        raise _unequal(a, b, first)
    if b.rank <= 2:
        return dot_general(a, b, ((last,), (first,)))
    if a.rank == 1:
        return dot_general(b, a, ((first,), (0,)))
    if a.rank == 2:  # [M, K] with [.., K, N] gives [M, .., N]
        out = dot_general(a, b, ((1,), (first,)))
        return transpose(out, (*range(1, b.rank - 1), 0, b.rank - 1))
    batch = common_shape("dot_general", [a.shape[:-2], b.shape[:-2]])
    a, b = broadcast_to(a, (*batch, *a.shape[-2:])), broadcast_to(b, (*batch, *b.shape[-2:]))
    axes = tuple(range(len(batch)))
    return dot_general(a, b, ((len(batch) + 1,), (len(batch),)), (axes, axes))


def _unequal(a: Value, b: Value, first: int) -> IRError:
    """The error for a product of K columns by another number of rows; names the matrix that is the other way round."""
    hints = []
    if b.rank >= 2 and b.shape[-1] == a.shape[-1]:
        hints.append(f"the right one ({'rhs.T' if b.rank == 2 else 'li.swapaxes(rhs, -1, -2)'})")
    if a.rank >= 2 and a.shape[-2] == b.shape[first]:
        hints.append(f"the left one ({'lhs.T' if a.rank == 2 else 'li.swapaxes(lhs, -1, -2)'})")
    asked = f". Transposed? {' or '.join(hints)}" if hints else ""
    sizes = f"{a.shape[-1]} (lhs axis {a.rank - 1}) and {b.shape[first]} (rhs axis {first})"
    problem = f"contracting sizes differ: {sizes}{asked}"
    return IRError(message("dot_general", problem, [("lhs", a.type), ("rhs", b.type)], here()))

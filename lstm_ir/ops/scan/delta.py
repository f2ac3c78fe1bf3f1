"""A delta rule for all steps: what a step writes depends on what it reads of the state before it.

    S[t] = a[t] S[t-1] + sum over j of k_j[t] u_j[t]^T          y[t] = q[t]^T S[t-1]
    u_j[t] = w_j[t] + S[t-1]^T e_j[t]                           e = -b a k, w = b v: the gated delta rule

Within a chunk of C steps that begins with the state S, and with M as in chunks.py, the rows u (of all steps and j one
below the other, as are w, e and k) solve a triangular system:

    (I - (E K^T) * M) U = W + (a[1] .. a[t-1]) E S

Its matrix does not depend on S, so it is solved for all chunks at once (triangular.py): P for W on the right-hand side,
Q for (a[1] .. a[t-1]) E. Then U = P + Q S, and the state after the chunk is linear in S:

    S'  =  (a[1] .. a[C] + Z^T Q) S + Z^T P,      Z[s] = (a[s+1] .. a[C]) k[s]

A loop over the chunks makes the states; what is written and read follows for all chunks at once. (Bischof and Van Loan
1987, doi:10.1137/0908009; Yang et al. 2024, arXiv:2406.06484, section 3; with decays arXiv:2412.06464, section 3.3.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.leaf import constant, parameter
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.primitive.custom_gradient import custom_vjp
from lstm_ir.ops.primitive.linear import dot_general
from lstm_ir.ops.primitive.shape import concat, reshape, transpose
from lstm_ir.ops.primitive.window import slice_axis
from lstm_ir.ops.scan.chunks import Cut, decays_of, scaled
from lstm_ir.ops.scan.node import STEP, scan_node
from lstm_ir.ops.scan.triangular import batched, solved
from lstm_ir.ops.scan.tuned import DELTA_ROWS, SHORT_KEYS


@dataclass(frozen=True)
class DeltaRows:
    """A matrix state for all steps, in the order of the steps: N sequences of T steps side by side, J writes a step.

    decay [T,N]; keys [T,N,J,K], values [T,N,J,V], erased [T,N,J,K]; queries, each [T,N,K]; first, the state [N,K,V]
    before the first step.
    """

    decay: Value
    keys: Value
    values: Value
    erased: Value
    queries: Sequence[Value]
    first: Value


def longest_delta(writes: int, keys: Dim) -> int:
    """Steps of a chunk, at most, by the writes of a step and the numbers of a key."""
    rows = DELTA_ROWS if isinstance(keys, int) and keys >= SHORT_KEYS else DELTA_ROWS // 2
    return max(1, rows // writes)


def beside(rows: Sequence[Value]) -> Value:
    """[T,N,J,D] of J values [T,N,D]."""
    return concat([reshape(x, (*x.shape[:2], 1, x.shape[2])) for x in rows], 2)


def delta_chunked(rows: DeltaRows, chunk: int, differentiated: bool) -> tuple[Value, Value, list[Value]]:
    """The last state, what was written [T,N,J,V], and what each query [T,N,V] reads of the state before its step."""
    T, n, writes, k = rows.keys.shape
    v = rows.first.shape[2]
    assert isinstance(writes, int)
    cut = Cut(T, chunk, n)
    many, length = cut.many, chunk * writes
    keys, values, erased = (
        reshape(cut.apart(x), (many, length, x.shape[3])) for x in (rows.keys, rows.values, rows.erased)
    )
    decays = decays_of(cut.rows(rows.decay, 1), many)
    before, left, since = (_for_each(x, writes) for x in (decays.before, decays.left, decays.since))
    system = e.negate(batched(erased, keys, 2, 2) * _rows_for_each(since, writes))
    both = solved(system, concat([values, scaled(erased, before)], 2), differentiated)
    written, through = slice_axis(both, 2, 0, v), slice_axis(both, 2, v, both.shape[2])
    late_keys = scaled(keys, left)
    kept = broadcast_in_dim(constant(np.eye(int(k)), keys.dtype), (many, k, k), (1, 2))
    kept = kept * broadcast_in_dim(decays.whole, kept.shape, (0,)) + batched(late_keys, through, 1, 1)
    added = batched(late_keys, written, 1, 1)
    chain = custom_vjp(_forward, _backward) if differentiated else _states
    last, states = chain(reshape(kept, (cut.count, n, k, k)), reshape(added, (cut.count, n, k, v)), rows.first)
    start = reshape(states, (many, k, v))
    written = written + batched(through, start)
    reads = []
    for q in map(cut.apart, rows.queries):
        inside = batched(batched(q, keys, 2, 2) * since, written)
        reads.append(cut.joined(inside + batched(scaled(q, decays.before), start)))
    return last, cut.joined(reshape(written, (many, chunk, writes, v))), reads


def _for_each(x: Value, writes: int) -> Value:
    """[R,..,C] as [R,..,C*J]: the same for each write of a step."""
    if writes == 1:
        return x
    wide = broadcast_in_dim(x, (*x.shape, writes), tuple(range(x.rank)))
    return reshape(wide, (*x.shape[:-1], dims.mul(x.shape[-1], writes)))


def _rows_for_each(x: Value, writes: int) -> Value:
    """[R,C,D] as [R,C*J,D]."""
    if writes == 1:
        return x
    many, chunk, columns = x.shape
    return reshape(
        broadcast_in_dim(x, (many, chunk, writes, columns), (0, 1, 3)), (many, dims.mul(chunk, writes), columns)
    )


def _states(kept: Value, added: Value, first: Value) -> tuple[Value, Value]:
    """The state after the last chunk, and before each: [chunks,N,K,V] of matrices [chunks,N,K,K]."""
    return _chained(kept, added, first, False)


def _chained(matrices: Value, added: Value, first: Value, back: bool) -> tuple[Value, Value]:
    """x <- matrix x + added, from the first chunk to the last or back: the last x, and what it was before each."""
    step, a = parameter("step", STEP), parameter("matrix", matrices.type.with_shape(matrices.shape[1:]))
    x, more = parameter("x", first.type), parameter("added", first.type)
    body = Graph("states", [step, x, a, more], [batched(a, x) + more, x])
    node = scan_node(body, (), (first,), (matrices, added), length=matrices.shape[0], reverse=(back,) * 3)
    last, before = node.values
    return last, before


def _forward(kept: Value, added: Value, first: Value) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
    last, states = _states(kept, added, first)
    return (last, states), (kept, states)


def _backward(saved: tuple[Value, Value], cts: tuple[Value, Value]) -> tuple[Value, Value, Value]:
    """The matrices' gradient is made after the loop, by one product for all chunks."""
    (kept, states), (d_last, d_states) = saved, cts
    d_first, d_after = _chained(transpose(kept, (0, 1, 3, 2)), d_states, d_last, True)
    d_kept = dot_general(d_after, states, ((3,), (3,)), ((0, 1), (0, 1)))
    return d_kept, d_after, d_first

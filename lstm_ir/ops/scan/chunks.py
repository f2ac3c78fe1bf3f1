"""Reads of a matrix state for all steps, by products inside chunks of steps and a loop over chunks.

    S[t] = a[t] S[t-1] + k[t] v[t]^T,      y[t] = q[t]^T S[t-1]

Within a chunk that begins with the state S, and with M[t,s] = a[s+1] .. a[t-1] for s < t, else 0:

    y[t]  = sum over s of (q[t].k[s]) M[t,s] v[s]  +  (a[1] .. a[t-1]) q[t]^T S
    S'    = sum over s of (a[s+1] .. a[C]) k[s] v[s]^T  +  (a[1] .. a[C]) S

(Hua et al. 2022, arXiv:2202.10447, section 3.2; Sun et al. 2023, arXiv:2307.08621, equation 7.) Decays are products of
neighbours, made row by row by one more loop for all chunks at once: nothing is divided by a product of decays and no
logarithm is taken, so that decays of 0, negative ones and tiny ones give what the loop over steps gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.leaf import constant, parameter
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.primitive.fill import ones, zeros
from lstm_ir.ops.primitive.linear import dot_general
from lstm_ir.ops.primitive.shape import concat, reshape, transpose
from lstm_ir.ops.primitive.window import slice_axis
from lstm_ir.ops.scan.node import STEP, scan_node
from lstm_ir.ops.scan.tuned import CHUNK_STEPS


@dataclass(frozen=True)
class StateRows:
    """A matrix state for all steps, in the order of the steps: N sequences of T steps side by side.

    decay [T,N], keys [T,N,K], values [T,N,V]; queries, each [T,N,K]; first, the state [N,K,V] before the first step.
    """

    decay: Value
    keys: Value
    values: Value
    queries: Sequence[Value]
    first: Value


def chunk_of(steps: Dim) -> int:
    """Steps of a chunk: such that few are left over."""
    if not isinstance(steps, int):
        return CHUNK_STEPS
    count = -(-steps // CHUNK_STEPS)
    return -(-steps // count)


def chunked(rows: StateRows, chunk: int) -> tuple[Value, list[Value]]:
    """The last state, and for each query [T,N,V] what it reads of the state before its step.

    T is a multiple of `chunk`, or a number.
    """
    T = rows.decay.shape[0]
    if isinstance(T, int) and T % chunk:
        last, reads = chunked(_longer(rows, -T % chunk), chunk)
        return last, [slice_axis(y, 0, 0, T) for y in reads]
    count = dims.floordiv(T, chunk)
    n, k, v = rows.first.shape
    many = dims.mul(count, n)

    def apart(x: Value) -> Value:
        """[T,N,..] as [chunks*N,C,..]."""
        cut = reshape(x, (count, chunk, *x.shape[1:]))
        turned = transpose(cut, (0, 2, 1, *range(3, cut.rank)))
        return reshape(turned, (many, chunk, *x.shape[2:]))

    keys, values = apart(rows.keys), apart(rows.values)
    queries = [apart(q) for q in rows.queries]
    before, since, left, whole = _decays(reshape(rows.decay, (count, chunk, n)), many)
    added = dot_general(_scaled(keys, left), values, ((1,), (1,)), ((0,), (0,)))
    last, states = _states(reshape(added, (count, n, k, v)), reshape(whole, (count, n)), rows.first)
    start = reshape(states, (many, k, v))
    reads = []
    for q in queries:
        scores = dot_general(q, keys, ((2,), (2,)), ((0,), (0,))) * since
        inside = dot_general(scores, values, ((2,), (1,)), ((0,), (0,)))
        y = inside + dot_general(_scaled(q, before), start, ((2,), (1,)), ((0,), (0,)))
        turned = transpose(reshape(y, (count, n, chunk, v)), (0, 2, 1, 3))
        reads.append(reshape(turned, (T, n, v)))
    return last, reads


def _longer(rows: StateRows, more: int) -> StateRows:
    """Further steps that leave the state as it is."""

    def padded(x: Value, number: float) -> Value:
        shape = (more, *x.shape[1:])
        return concat([x, zeros(shape, x.dtype) if number == 0 else ones(shape, x.dtype)], 0)

    return StateRows(padded(rows.decay, 1), padded(rows.keys, 0), padded(rows.values, 0),
                [padded(q, 0) for q in rows.queries], rows.first)  # fmt: skip


def _scaled(x: Value, by: Value) -> Value:
    """[N,C,K] by a number for each [N,C]."""
    return x * broadcast_in_dim(by, x.shape, (0, 1))


def _decays(decay: Value, many: Dim) -> tuple[Value, Value, Value, Value]:
    """Of [chunks,C,N], with R = chunks*N rows: the decays before each step [R,C], between two steps [R,C,C], from each
    step to the end [R,C], and of the whole chunk [R]."""
    chunk = decay.shape[1]
    turned = reshape(transpose(decay, (1, 0, 2)), (chunk, many))
    dtype = decay.dtype
    step, a, one = parameter("step", STEP), parameter("decay", turned.type.with_shape((many,))), None
    total, row = parameter("total", a.type), parameter("row", a.type.with_shape((many, chunk)))
    one = parameter("one", a.type.with_shape((chunk,)))
    new = row * broadcast_in_dim(a, row.shape, (0,)) + broadcast_in_dim(one, row.shape, (1,))
    body = Graph("decays", [step, total, row, a, one], [total * a, new, total, row])
    unit = constant(np.eye(chunk), dtype)
    first = ones((many,), dtype), zeros((many, chunk), dtype)
    node = scan_node(body, (), first, (turned, unit), length=chunk, reverse=(False,) * 4)
    whole, left, before, since = node.values
    return transpose(before, (1, 0)), transpose(since, (1, 0, 2)), left, whole


def _states(added: Value, decay: Value, first: Value) -> tuple[Value, Value]:
    """The state after the last chunk, and before each: [chunks,N,K,V], elements of a state side by side in the loop."""
    count, n, k, v = added.shape
    flat = dims.mul(k, v)
    step, a = parameter("step", STEP), parameter("decay", decay.type.with_shape((n,)))
    state = parameter("state", first.type.with_shape((n, flat)))
    more = parameter("added", state.type)
    new = state * broadcast_in_dim(a, state.shape, (0,)) + more
    body = Graph("states", [step, state, a, more], [new, state])
    xs = (decay, reshape(added, (count, n, flat)))
    node = scan_node(body, (), (reshape(first, (n, flat)),), xs, length=count, reverse=(False,) * 3)
    last, states = node.values
    return reshape(last, first.shape), reshape(states, (count, n, k, v))

"""Reads of a matrix state for all steps, by products inside chunks of steps and a loop over chunks.

    S[t] = a[t] S[t-1] + k[t] v[t]^T,      y[t] = q[t]^T S[t-1]

Within a chunk that begins with the state S, and with M[t,s] = a[s+1] .. a[t-1] for s < t, else 0:

    y[t]  = sum over s of (q[t].k[s]) M[t,s] v[s]  +  (a[1] .. a[t-1]) q[t]^T S
    S'    = sum over s of (a[s+1] .. a[C]) k[s] v[s]^T  +  (a[1] .. a[C]) S

A decay for each row or each column of the state, a[t] in R^K or in R^V, stands inside of the sums over k, or beside v:

    a in R^K:   sum over k of q[t,k] k[s,k] M[t,s,k]         in place of  (q[t].k[s]) M[t,s]
    a in R^V:   (q[t].k[s]) M[t,s] v[s], a product by column

(Yang et al. 2023, arXiv:2312.06635, section 4.) Each pair of steps then has K, or V, decays: chunks are short.

(Hua et al. 2022, arXiv:2202.10447, section 3.2; Sun et al. 2023, arXiv:2307.08621, equation 7.) Decays are products of
neighbours, made row by row by one more loop for all chunks at once: nothing is divided by a product of decays and no
logarithm is taken, so that decays of 0, negative ones and tiny ones give what the loop over steps gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.leaf import constant, parameter
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.primitive.fill import ones, zeros
from lstm_ir.ops.primitive.linear import dot_general
from lstm_ir.ops.primitive.reduce import sum as sum_over
from lstm_ir.ops.primitive.shape import reshape, transpose
from lstm_ir.ops.primitive.window import pad_axis, slice_axis
from lstm_ir.ops.scan.node import STEP, scan_node
from lstm_ir.ops.scan.tuned import CHUNK_STEPS, PAIRED_STEPS


class DecayAlong(Enum):
    """What a decay differs along, beside the sequences."""

    nothing = "a number for each state"
    keys = "a number for each row, along the axis that reads sum over"
    values = "a number for each column"


@dataclass(frozen=True)
class StateRows:
    """A matrix state for all steps, in the order of the steps: N sequences of T steps side by side.

    decay [T,N], or [T,N,K] along keys, or [T,N,V] along values; keys [T,N,K], values [T,N,V]; queries, each [T,N,K];
    first, the state [N,K,V] before the first step.
    """

    decay: Value
    keys: Value
    values: Value
    queries: Sequence[Value]
    first: Value
    along: DecayAlong = DecayAlong.nothing


def longest_chunk(along: DecayAlong) -> int:
    """Steps of a chunk, at most."""
    return CHUNK_STEPS if along is DecayAlong.nothing else PAIRED_STEPS


def chunk_of(steps: Dim, most: int = CHUNK_STEPS) -> int:
    """Steps of a chunk: such that few are left over."""
    if not isinstance(steps, int):
        return most
    count = -(-steps // most)
    return -(-steps // count)


@dataclass(frozen=True)
class Cut:
    """T steps of N sequences, cut into chunks: `count` of them, `many` with those of all sequences.

    The last chunk is filled up by steps that leave the state as it is.
    """

    steps: Dim
    chunk: int
    sequences: Dim

    @property
    def count(self) -> Dim:
        """Chunks of one sequence."""
        return dims.floordiv(dims.add(self.steps, self.chunk - 1), self.chunk)

    @property
    def many(self) -> Dim:
        """Of all."""
        return dims.mul(self.count, self.sequences)

    @property
    def filled(self) -> Dim:
        """Steps of all chunks of a sequence."""
        return dims.mul(self.count, self.chunk)

    def rows(self, x: Value, fill: float = 0) -> Value:
        """[T,..] as [chunks,C,..]."""
        whole = pad_axis(x, 0, 0, dims.add(self.filled, dims.mul(self.steps, -1)), fill)
        return reshape(whole, (self.count, self.chunk, *x.shape[1:]))

    def apart(self, x: Value) -> Value:
        """[T,N,..] as [chunks*N,C,..]."""
        cut = self.rows(x)
        turned = transpose(cut, (0, 2, 1, *range(3, cut.rank)))
        return reshape(turned, (self.many, self.chunk, *x.shape[2:]))

    def joined(self, y: Value) -> Value:
        """[chunks*N,C,..] as [T,N,..]."""
        wide = reshape(y, (self.count, self.sequences, *y.shape[1:]))
        turned = transpose(wide, (0, 2, 1, *range(3, wide.rank)))
        return slice_axis(reshape(turned, (self.filled, self.sequences, *y.shape[2:])), 0, 0, self.steps)


def chunked(rows: StateRows, chunk: int) -> tuple[Value, list[Value]]:
    """The last state, and for each query [T,N,V] what it reads of the state before its step."""
    n, k, v = rows.first.shape
    cut = Cut(rows.decay.shape[0], chunk, n)
    count, many, along = cut.count, cut.many, rows.along
    keys, values = cut.apart(rows.keys), cut.apart(rows.values)
    queries = [cut.apart(q) for q in rows.queries]
    decays = decays_of(cut.rows(rows.decay, 1), many)
    left_keys, left_values = keys, values
    if along is DecayAlong.values:
        left_values = values * decays.left
    else:
        left_keys = scaled(keys, decays.left)
    added = dot_general(left_keys, left_values, ((1,), (1,)), ((0,), (0,)))
    whole = decays.whole
    if along is not DecayAlong.nothing:
        whole = broadcast_in_dim(whole, (many, k, v), (0, 1 if along is DecayAlong.keys else 2))
    last, states = _states(reshape(added, (count, n, k, v)), reshape(whole, (count, n, *whole.shape[1:])), rows.first)
    start = reshape(states, (many, k, v))
    reads = [
        cut.joined(_inside(q, keys, values, decays.since, along) + _of_start(q, start, decays.before, along))
        for q in queries
    ]
    return last, reads


def _inside(q: Value, keys: Value, values: Value, since: Value, along: DecayAlong) -> Value:
    """What queries [R,C,K] read of the steps of their own chunk before them: [R,C,V]."""
    if along is DecayAlong.keys:
        shape = since.shape  # [R,C,C,K]
        scores = sum_over(broadcast_in_dim(q, shape, (0, 1, 3)) * broadcast_in_dim(keys, shape, (0, 2, 3)) * since, 3)
        return dot_general(scores, values, ((2,), (1,)), ((0,), (0,)))
    scores = dot_general(q, keys, ((2,), (2,)), ((0,), (0,)))
    if along is DecayAlong.nothing:
        return dot_general(scores * since, values, ((2,), (1,)), ((0,), (0,)))
    shape = since.shape  # [R,C,C,V]
    return sum_over(broadcast_in_dim(scores, shape, (0, 1, 2)) * broadcast_in_dim(values, shape, (0, 2, 3)) * since, 2)


def _of_start(q: Value, start: Value, before: Value, along: DecayAlong) -> Value:
    """What queries [R,C,K] read of the states [R,K,V] with which their chunks begin: [R,C,V]."""
    if along is DecayAlong.values:
        return dot_general(q, start, ((2,), (1,)), ((0,), (0,))) * before
    return dot_general(scaled(q, before), start, ((2,), (1,)), ((0,), (0,)))


def scaled(x: Value, by: Value) -> Value:
    """[N,C,K] by a number for each [N,C], or for each element."""
    return x * (by if by.rank == x.rank else broadcast_in_dim(by, x.shape, (0, 1)))


@dataclass(frozen=True)
class Decays:
    """Products of neighbouring decays, of R chunks of C steps; each has one more axis where decays differ along one."""

    before: Value  # [R,C]: from the chunk's begin to each step
    since: Value  # [R,C,C]: between two steps, 0 for a later one
    left: Value  # [R,C]: from each step to the end
    whole: Value  # [R]


def decays_of(decay: Value, many: Dim) -> Decays:
    """Of [chunks,C,N], or [chunks,C,N,D], with R = chunks*N."""
    _, chunk, *others = decay.shape
    more = tuple(others[1:])
    numbers = dims.product((many, *more))
    order = (1, 0, *range(2, decay.rank))
    turned = reshape(transpose(decay, order), (chunk, numbers))
    dtype = decay.dtype
    step, a = parameter("step", STEP), parameter("decay", turned.type.with_shape((numbers,)))
    total, row = parameter("total", a.type), parameter("row", a.type.with_shape((numbers, chunk)))
    one = parameter("one", a.type.with_shape((chunk,)))
    new = row * broadcast_in_dim(a, row.shape, (0,)) + broadcast_in_dim(one, row.shape, (1,))
    body = Graph("decays", [step, total, row, a, one], [total * a, new, total, row])
    unit = constant(np.eye(chunk), dtype)
    first = ones((numbers,), dtype), zeros((numbers, chunk), dtype)
    node = scan_node(body, (), first, (turned, unit), length=chunk, reverse=(False,) * 4)
    whole, left, before, since = node.values

    def apart(x: Value, order: tuple[int, ...], at: int) -> Value:
        """Axes in this order; the one of the numbers, which is `at`, as R and what decays differ along."""
        if not more:
            return transpose(x, order)
        wide = reshape(x, (*x.shape[:at], many, *more, *x.shape[at + 1 :]))
        places = {at: at} | {i: i + (i > at) for i in range(x.rank)}
        return transpose(wide, (*(places[i] for i in order), at + 1))

    return Decays(apart(before, (1, 0), 1), apart(since, (1, 0, 2), 1), apart(left, (0, 1), 0), apart(whole, (0,), 0))


def _states(added: Value, decay: Value, first: Value) -> tuple[Value, Value]:
    """The state after the last chunk, and before each: [chunks,N,K,V], elements of a state side by side in the loop."""
    count, n, k, v = added.shape
    flat = dims.mul(k, v)
    by = decay if decay.rank == 2 else reshape(decay, (count, n, flat))  # a number for each state, or for each element
    step, a = parameter("step", STEP), parameter("decay", decay.type.with_shape(by.shape[1:]))
    state = parameter("state", first.type.with_shape((n, flat)))
    more = parameter("added", state.type)
    new = state * (broadcast_in_dim(a, state.shape, (0,)) if a.rank == 1 else a) + more
    body = Graph("states", [step, state, a, more], [new, state])
    xs = (by, reshape(added, (count, n, flat)))
    node = scan_node(body, (), (reshape(first, (n, flat)),), xs, length=count, reverse=(False,) * 3)
    last, states = node.values
    return reshape(last, first.shape), reshape(states, (count, n, k, v))

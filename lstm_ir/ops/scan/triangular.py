"""Systems of unit lower triangular matrices, all of a batch at once.

    (I + M) Y = R,   M[i,j] = 0 for j >= i            X = (I + M)^-1:  x_i = e_i - sum over j < i of M[i,j] x_j

Rows x_i of X are made one after another: forward substitution, whose error is that of the recurrence it stands for.
(I - M)(I + M^2)(I + M^4) .. would be products alone, but powers of M grow as binomial coefficients where all elements
are near 1.

    dR = X^T dY          dM = -dR Y^T, below the diagonal
"""

from __future__ import annotations

import numpy as np

from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.leaf import constant, parameter
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.ops.primitive.custom_gradient import custom_vjp
from lstm_ir.ops.primitive.fill import zeros
from lstm_ir.ops.primitive.linear import dot_general
from lstm_ir.ops.primitive.reduce import sum as sum_over
from lstm_ir.ops.primitive.shape import transpose
from lstm_ir.ops.scan.node import STEP, scan_node


def batched(a: Value, b: Value, over_a: int = 2, over_b: int = 1) -> Value:
    """A product for each matrix of two batches, by default [R,I,K] x [R,K,J]."""
    return dot_general(a, b, ((over_a,), (over_b,)), ((0,), (0,)))


def solved(m: Value, r: Value, differentiated: bool) -> Value:
    """Y [R,L,D] of M [R,L,L] and R [R,L,D]; differentiated: with a gradient of its own."""
    made: Value = custom_vjp(_forward, _backward)(m, r) if differentiated else _forward(m, r)[0]
    return made


def _forward(m: Value, r: Value) -> tuple[Value, tuple[Value, Value]]:
    x = _inverted(m)
    y = batched(x, r)
    return y, (x, y)


def _backward(kept: tuple[Value, Value], ct: Value) -> tuple[Value, Value]:
    x, y = kept
    g = batched(x, ct, 1, 1)
    size = x.shape[1]
    assert isinstance(size, int)
    below = broadcast_in_dim(constant(np.tri(size, k=-1), x.dtype), x.shape, (1, 2))
    return e.negate(batched(g, y, 2, 2)) * below, g


def _inverted(m: Value) -> Value:
    """(I + M)^-1 of [R,L,L], row after row."""
    many, size, _ = m.shape
    assert isinstance(size, int)
    turned, unit = transpose(m, (1, 0, 2)), constant(np.eye(size), m.dtype)
    step, x = parameter("step", STEP), parameter("x", m.type)
    row, one = parameter("row", m.type.with_shape((many, size))), parameter("one", m.type.with_shape((size,)))
    known = sum_over(broadcast_in_dim(row, m.shape, (0, 1)) * x, 1)
    new = broadcast_in_dim(one, (many, size), (1,)) - known
    both = broadcast_in_dim(one, m.shape, (1,)) * broadcast_in_dim(new, m.shape, (0, 2))
    body = Graph("inverse", [step, x, row, one], [x + both])
    first = zeros((many, size, size), m.dtype)
    return scan_node(body, (), (first,), (turned, unit), length=size, reverse=(False,) * 2).values[0]

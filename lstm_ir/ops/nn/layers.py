"""Layers around a recurrence: `embedding`, `dense` and `layer_norm`, built of other ops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.location import here
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import as_values
from lstm_ir.ops.primitive.gather import take
from lstm_ir.ops.primitive.linear import matmul
from lstm_ir.ops.primitive.reduce import mean
from lstm_ir.ops.primitive.shape import swapaxes


def embedding(table: Any, ids: Any) -> Value:
    """Rows of `table` [V, E] by integers [...]: [..., E]. Each id lies in 0 ... V - 1."""
    (v,) = as_values("embedding", table)
    if v.rank != 2:
        raise IRError(message("embedding", "the table has two axes", [("table", v.type)], here()))
    return take(v, ids, axis=0)


def dense(x: Any, w: Any, b: Any = None) -> Value:
    """x [..., I] times the transpose of w [O, I], plus b [O]: [..., O]."""
    v, m = as_values("dense", x, w)
    if m.rank != 2:
        raise IRError(message("dense", "the weight is [O, I]", [("w", m.type)], here()))
    y = matmul(v, swapaxes(m, 0, 1))
    return y if b is None else e.add(y, b)


def layer_norm(x: Any, scale: Any = None, bias: Any = None, *, epsilon: float = 1e-5) -> Value:
    """(x - mean) / sqrt(var + epsilon) * scale + bias over the last axis: [..., N], scale and bias [N].

    Source: Ba, Kiros & Hinton, "Layer normalization", 2016; var divides by N.
    """
    (v,) = as_values("layer_norm", x)
    if not isinstance(epsilon, (int, float, np.number)) or not 0 <= epsilon < math.inf:
        problem = f"epsilon is {epsilon!r}; it is at least 0"
        raise IRError(message("layer_norm", problem, [("x", v.type)], here()))
    centred = v - mean(v, -1, keepdims=True)
    y = centred * e.rsqrt(mean(centred * centred, -1, keepdims=True) + epsilon)
    y = y if scale is None else e.multiply(y, scale)
    return y if bias is None else e.add(y, bias)

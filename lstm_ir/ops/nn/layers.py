"""Layers around a recurrence: `embedding`, `dense` and `layer_norm`, built of other ops."""

from __future__ import annotations

from typing import Any

from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.location import here
from lstm_ir.ops.nn.normalisation import affine, like_axes, need_epsilon, normalised
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import as_values
from lstm_ir.ops.primitive.gather import take
from lstm_ir.ops.primitive.linear import matmul
from lstm_ir.ops.primitive.precision import floats
from lstm_ir.ops.primitive.shape import axes_of, swapaxes


def embedding(table: Any, ids: Any) -> Value:
    """Rows of `table` [V, E] by integers [...]: [..., E]. Each id lies in 0 ... V - 1."""
    (v,) = as_values("embedding", table)
    if v.rank != 2:
        raise IRError(message("embedding", "the table has two axes", [("table", v.type)], here()))
    (at,) = as_values("embedding", ids)
    if not at.dtype.is_int:
        swapped = ". The other way round? The table comes first" if v.dtype.is_int and at.rank == 2 else ""
        problem = f"ids are {at.type}, not integers{swapped}"
        raise IRError(message("embedding", problem, [("table", v.type), ("ids", at.type)], here()))
    return take(v, at, axis=0)


def dense(x: Any, w: Any, b: Any = None) -> Value:
    """x [..., I] times the transpose of w [O, I], plus b [O]: [..., O]."""
    v, m = as_values("dense", x, w)
    if m.rank != 2:
        raise IRError(message("dense", "the weight is [O, I]", [("w", m.type)], here()))
    if v.rank and v.shape[-1] == m.shape[0] != m.shape[1]:
        problem = f"w is {m.type}, x has {v.shape[-1]} columns: the weight is [O, I]. Transposed? Give w.T"
        raise IRError(message("dense", problem, [("x", v.type), ("w", m.type)], here()))
    y = matmul(v, swapaxes(m, 0, 1))
    return y if b is None else e.add(y, b)


def layer_norm(x: Any, scale: Any = None, bias: Any = None, *, epsilon: float = 1e-5) -> Value:
    """(x - mean) / sqrt(var + epsilon) * scale + bias over the last axis: [..., N], scale and bias [N].

    Source: Ba, Kiros & Hinton, "Layer normalization", 2016; var divides by N.
    """
    v, small = floats("layer_norm", x), need_epsilon("layer_norm", epsilon)
    last = axes_of("layer_norm", v, -1)
    by, plus = (like_axes("layer_norm", v, w, n, last) for w, n in ((scale, "scale"), (bias, "bias")))
    return affine(normalised(e.convert(v, v.dtype.compute_dtype), -1, small).y, by, plus, v.dtype)

"""Attention: a softmax over products of queries and keys, which weighs values.

    attention(q, k, v) = softmax(q k^T scale + mask) v

Source: Vaswani et al., "Attention is all you need", 2017.
"""

from __future__ import annotations

import math
from typing import Any

from lstm_ir.ir import dims, options
from lstm_ir.ir.dims import Dim
from lstm_ir.ir.errors import IRError, message
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.location import here
from lstm_ir.ir.types import DType
from lstm_ir.ops.nn.layers import dense
from lstm_ir.ops.nn.softmax import softmax
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import as_values, broadcast_to
from lstm_ir.ops.primitive.fill import iota
from lstm_ir.ops.primitive.linear import matmul
from lstm_ir.ops.primitive.reduce import max
from lstm_ir.ops.primitive.shape import reshape, swapaxes, transpose
from lstm_ir.ops.primitive.window import slice_axis


def attention(
    q: Any, k: Any, v: Any, mask: Any = None, *, causal: bool = False, scale: float | None = None,
    softcap: float | None = None,
) -> Value:  # fmt: skip
    """Queries [..., T, D] over keys [..., S, D] weigh values [..., S, E]: [..., T, E].

    mask, which broadcasts to [..., T, S]: i1, true where a query may see a key, or floats that are added. causal:
    query t sees keys up to t. A query that sees no key gives 0. scale: 1 / sqrt(D) if not given. softcap c: products
    become c tanh(product / c) before the mask.
    """
    q, k, v = as_values("attention", q, k, v)
    given = [("q", q.type), ("k", k.type), ("v", v.type)]
    fits = min(q.rank, k.rank, v.rank) >= 2 and q.dtype.is_float and q.dtype is k.dtype is v.dtype
    if not (fits and q.shape[-1] == k.shape[-1] and k.shape[-2] == v.shape[-2]):
        problem = "q, k and v are floats [..., T, D], [..., S, D] and [..., S, E]"
        raise IRError(message("attention", problem, given, here()))
    kind = q.dtype.compute_dtype
    factor = options.real("attention", "scale", _scale(q.shape[-1]) if scale is None else scale)
    scores = matmul(e.convert(q, kind) * factor, e.convert(swapaxes(k, -2, -1), kind))
    if softcap is not None:
        cap = options.real("attention", "softcap", softcap)
        if cap <= 0:
            raise options.refuse("attention", "softcap", softcap, "a number above 0")
        scores = e.tanh(scores * (1 / cap)) * cap
    scores = _masked(scores, mask, options.flag("attention", "causal", causal))
    if mask is None:  # every query sees the first key
        weights = softmax(scores, -1)
    else:
        blind = e.equal(max(scores, -1, keepdims=True), -math.inf)
        zero = constant(0, kind)
        weights = e.select(blind, zero, softmax(e.select(blind, zero, scores), -1))
    return matmul(e.convert(weights, v.dtype), v)


def _scale(size: Dim) -> float:
    if not isinstance(size, int) or size < 1:
        raise options.refuse("attention", "scale", None, f"a number, since D is {size}")
    return 1 / math.sqrt(size)


def _masked(scores: Value, mask: Any, causal: bool) -> Value:
    lowest = constant(-math.inf, scores.dtype)
    if mask is not None:
        m = mask if isinstance(mask, Value) else constant(mask)
        if m.dtype is not DType.i1 and not m.dtype.is_float:
            raise IRError(message("attention", f"mask is {m.type}, expected i1 or floats", (), here()))
        wide = broadcast_to(m, scores.shape)
        scores = e.select(wide, scores, lowest) if m.dtype is DType.i1 else scores + e.convert(wide, scores.dtype)
    if causal:
        rows, columns = (iota(scores.shape, a, DType.i32) for a in (scores.rank - 2, scores.rank - 1))
        scores = e.select(e.greater_equal(rows, columns), scores, lowest)
    return scores


def multi_head_attention(
    query: Any, key: Any, value: Any, w_in: Any, w_out: Any, b_in: Any = None, b_out: Any = None, *, heads: int,
    mask: Any = None, causal: bool = False, layout: str = "time",
) -> Value:  # fmt: skip
    """Attention of `heads` parts of E columns each projected: query [T,B,E], key and value [S,B,E] give [T,B,E].

    Weights have PyTorch's shapes: w_in [3E,E] with b_in [3E] (rows of queries, keys, values), w_out [E,E] with
    b_out [E]. layout "batch": [B,T,E]. mask, which broadcasts to [B,heads,T,S], and causal as in `attention`: true
    where a key may be seen (PyTorch's layer has the opposite).
    """
    name = "multi_head_attention"
    q, k, v, w, out = as_values(name, query, key, value, w_in, w_out)
    first = options.choice(name, "layout", layout, ("time", "batch")) == "batch"
    count = options.integer(name, "heads", heads)
    given = [("query", q.type), ("key", k.type), ("value", v.type), ("w_in", w.type), ("w_out", out.type)]
    width = q.shape[-1] if q.rank else None
    if not isinstance(width, int) or count < 1 or width % count:
        raise options.refuse(name, "heads", heads, f"a divisor of E, the number of columns {width}")
    if q.rank != 3 or k.rank != 3 or v.rank != 3 or w.shape != (3 * width, width) or out.shape != (width, width):
        problem = "query, key and value are [T,B,E], [S,B,E] and [S,B,E], w_in [3E,E], w_out [E,E]"
        raise IRError(message(name, problem, given, here()))
    bias = None if b_in is None else as_values(name, q, b_in)[1]

    def part(x: Value, i: int) -> Value:
        rows, more = (None if u is None else slice_axis(u, 0, i * width, (i + 1) * width) for u in (w, bias))
        return _headed(dense(x, rows, more), count, first)

    y = attention(part(q, 0), part(k, 1), part(v, 2), mask, causal=causal)  # [B, heads, T, E / heads]
    y = transpose(y, (0, 2, 1, 3) if first else (2, 0, 1, 3))
    y = reshape(y, (*y.shape[:2], dims.mul(y.shape[2], y.shape[3])))
    return dense(y, out, b_out)


def _headed(x: Value, heads: int, batch_first: bool) -> Value:
    """[B, heads, T, E / heads] of [T,B,E], or [B,T,E]."""
    width = x.shape[-1]
    assert isinstance(width, int)
    parts = reshape(x, (*x.shape[:2], heads, width // heads))
    return transpose(parts, (0, 2, 1, 3) if batch_first else (1, 2, 0, 3))

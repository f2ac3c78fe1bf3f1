"""Scaled products of queries and keys, whose softmax weighs values."""

from __future__ import annotations

import math

from lstm_ir import ops as li
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim, Expr
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType

_REFUSED = "the fourth result; softmax_precision other than f32; softcap with a mask before operator set 24"


@taken("Attention", 23, 24, 25, refused=_REFUSED)
def attention(c: Call) -> list[Value]:
    """softmax(Q K^T scale + mask) V, over [B,N,T,D] or, with numbers of heads, [B,T,N*D]; with the keys and values
    [B,N,S,D] of the past before these, and what both are together.

    A row whose places are all masked is 0, as in onnxruntime and PyTorch.
    """
    q, k, v = c.value(0), c.value(1), c.value(2)
    if c.wants(3):
        raise NodeRefusedError("the products of queries and keys as a result are not taken")
    if c.has_attribute("softmax_precision") and c.integer("softmax_precision") != 1:
        raise NodeRefusedError("softmax_precision is not 1, f32")
    if c.has_attribute("qk_matmul_output_mode"):
        c.integer("qk_matmul_output_mode")  # of a result that is not taken
    heads = [c.integer(name, 0) for name in ("q_num_heads", "kv_num_heads")]
    flat = q.rank == 3
    if flat:
        q, k, v = (_headed(x, n) for x, n in zip((q, k, v), (heads[0], heads[1], heads[1]), strict=True))
    if not q.rank == k.rank == v.rank == 4:
        raise NodeRefusedError(f"operands are {q.type}, {k.type} and {v.type}")
    size = q.shape[3]
    if not isinstance(size, int) or size < 1:
        raise NodeRefusedError(f"the operand is {q.type}, of an open size of heads")
    past, keys, values = _after_past(c, k, v)
    k, v = (_repeated(x, q) for x in (keys, values))
    c.agree("columns of queries and keys", size, k.shape[3])
    c.agree("rows of keys and values", k.shape[2], v.shape[2])
    cap = c.real("softcap", 0.0)
    causal, mask = _mask(c, q, k, past)
    if cap > 0 and mask is not None and c.opset < 24:
        raise NodeRefusedError("softcap with a mask, whose order this operator set does not say")
    y = li.attention(
        q, k, v, mask, causal=causal, scale=c.real("scale") if c.has_attribute("scale") else None,
        softcap=cap if cap > 0 else None,
    )  # fmt: skip
    if flat:
        y = li.transpose(y, (0, 2, 1, 3))
        y = li.reshape(y, (*y.shape[:2], dims.mul(y.shape[2], y.shape[3])))
    return [y, keys, values]


def _after_past(c: Call, k: Value, v: Value) -> tuple[Dim, Value, Value]:
    """The number of keys of the past, and all keys and values."""
    past_k, past_v = c.maybe(4), c.maybe(5)
    if (past_k is None) != (past_v is None):
        raise NodeRefusedError("it has keys or values of the past, not both")
    if past_k is None or past_v is None:
        return 0, k, v
    if past_k.rank != 4 or past_v.rank != 4:
        raise NodeRefusedError(f"the past is {past_k.type} and {past_v.type}, not [B,N,S,D]")
    return past_k.shape[2], li.concat([past_k, k], 2), li.concat([past_v, v], 2)


def _mask(c: Call, q: Value, k: Value, past: Dim) -> tuple[bool, Value | None]:
    """Whether each query sees the keys up to its own place, where that is all; otherwise all masks as one.

    The place of query i is i plus the keys of the past, or, with lengths of keys, i plus what these are more than
    queries. A window leaves so many keys before and after that place.
    """
    given, lengths, causal = c.maybe(3), c.maybe(6), c.flag("is_causal")
    left, right = (c.integer(f"{side}_window_size", -1) for side in ("left", "right"))
    if lengths is not None and c.has(4):
        raise NodeRefusedError("it has both keys of the past and lengths of keys")
    if given is None and lengths is None and left < 0 and right < 0 and past == 0:
        return causal, None
    T, S = q.shape[2], k.shape[2]
    places, keys = li.iota((T, S), 0, DType.i64), li.iota((T, S), 1, DType.i64)
    first: Value = li.convert(li.size(past), DType.i64) if isinstance(past, Expr) else li.constant(past, DType.i64)
    seen: list[Value] = []
    if lengths is not None:
        many = li.reshape(li.convert(lengths, DType.i64), (q.shape[0], 1, 1, 1))
        first = many - li.convert(li.size(T), DType.i64)
        seen.append(li.less(keys, many))
    at = places + first
    if causal:
        seen.append(li.less_equal(keys, at))
    if left >= 0:
        seen.append(li.less_equal(at - keys, left))
    if right >= 0:
        seen.append(li.less_equal(keys - at, right))
    if given is not None:
        given = _widened(given, S)
        if given.dtype is DType.i1:
            seen.append(given)
    allowed = seen[0] if seen else None
    for more in seen[1:]:
        allowed = li.logical_and(allowed, more)
    if given is None or given.dtype is DType.i1:
        return False, allowed
    if allowed is None:
        return False, given
    return False, li.select(allowed, given, li.constant(-math.inf, given.dtype))


def _widened(mask: Value, S: Dim) -> Value:
    """A mask of fewer keys than there are hides the others."""
    if not mask.rank:
        raise NodeRefusedError(f"the mask is {mask.type}, without an axis of keys")
    there = mask.shape[-1]
    if there == S or not (isinstance(S, int) and isinstance(there, int) and there < S):
        return mask
    high = [*[0] * (mask.rank - 1), S - there]
    if mask.dtype is DType.i1:
        wide = li.pad(li.convert(mask, DType.i32), [0] * mask.rank, high)
        return li.not_equal(wide, 0)
    return li.pad(mask, [0] * mask.rank, high, value=-math.inf)


def _headed(x: Value, heads: int) -> Value:
    """x [B,T,N*D] as [B,N,T,D]."""
    last = x.shape[-1]
    if x.rank != 3 or not isinstance(last, int) or heads < 1 or last % heads:
        raise NodeRefusedError(f"the operand is {x.type}, with {heads} heads")
    return li.transpose(li.reshape(x, (*x.shape[:2], heads, last // heads)), (0, 2, 1, 3))


def _repeated(x: Value, q: Value) -> Value:
    """x [B,N,S,D] with each head as often as queries share it."""
    wanted, there = q.shape[1], x.shape[1]
    if wanted == there:
        return x
    if not isinstance(wanted, int) or not isinstance(there, int) or there < 1 or wanted % there:
        raise NodeRefusedError(f"{wanted} heads of queries over {there} heads of keys")
    wide = li.broadcast_in_dim(x, (x.shape[0], there, wanted // there, *x.shape[2:]), (0, 1, 3, 4))
    return li.reshape(wide, (x.shape[0], wanted, *x.shape[2:]))

"""Scaled products of queries and keys, whose softmax weighs values."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.refusals import RefusedError
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Value

_REFUSED = (
    "keys and values of the past, lengths of keys; results other than the first; softmax_precision other than f32"
)


@taken("Attention", 23, 24, 25, refused=_REFUSED)
def attention(c: Call) -> Value:
    """softmax(Q K^T scale + mask) V, over [B,N,T,D] or, with numbers of heads, [B,T,N*D].

    A row whose places are all masked is 0, as in onnxruntime and PyTorch.
    """
    q, k, v, mask = c.value(0), c.value(1), c.value(2), c.maybe(3)
    if any(c.wants(i) for i in (1, 2, 3)) or any(c.has(i) for i in (4, 5, 6)):
        raise RefusedError("past keys and values, lengths and results other than the first are not taken")
    if c.has_attribute("softmax_precision") and c.integer("softmax_precision") != 1:
        raise RefusedError("softmax_precision is not 1, f32")
    if c.has_attribute("qk_matmul_output_mode"):
        c.integer("qk_matmul_output_mode")  # of a result that is not taken
    heads = [c.integer(name, 0) for name in ("q_num_heads", "kv_num_heads")]
    flat = q.rank == 3
    if flat:
        q, k, v = (_headed(x, n) for x, n in zip((q, k, v), (heads[0], heads[1], heads[1]), strict=True))
    if not q.rank == k.rank == v.rank == 4:
        raise RefusedError(f"operands are {q.type}, {k.type} and {v.type}")
    size = q.shape[3]
    if not isinstance(size, int) or size < 1:
        raise RefusedError(f"the operand is {q.type}, of an open size of heads")
    k, v = (_repeated(x, q) for x in (k, v))
    c.agree("columns of queries and keys", size, k.shape[3])
    c.agree("rows of keys and values", k.shape[2], v.shape[2])
    cap = c.real("softcap", 0.0)
    if cap > 0 and mask is not None:
        raise RefusedError("softcap with a mask is not taken")
    y = li.attention(
        q, k, v, mask, causal=c.flag("is_causal"), scale=c.real("scale") if c.has_attribute("scale") else None,
        softcap=cap if cap > 0 else None,
    )  # fmt: skip
    if not flat:
        return y
    y = li.transpose(y, (0, 2, 1, 3))
    return li.reshape(y, (*y.shape[:2], dims.mul(y.shape[2], y.shape[3])))


def _headed(x: Value, heads: int) -> Value:
    """x [B,T,N*D] as [B,N,T,D]."""
    last = x.shape[-1]
    if x.rank != 3 or not isinstance(last, int) or heads < 1 or last % heads:
        raise RefusedError(f"the operand is {x.type}, with {heads} heads")
    return li.transpose(li.reshape(x, (*x.shape[:2], heads, last // heads)), (0, 2, 1, 3))


def _repeated(x: Value, q: Value) -> Value:
    """x [B,N,S,D] with each head as often as queries share it."""
    wanted, there = q.shape[1], x.shape[1]
    if wanted == there:
        return x
    if not isinstance(wanted, int) or not isinstance(there, int) or there < 1 or wanted % there:
        raise RefusedError(f"{wanted} heads of queries over {there} heads of keys")
    wide = li.broadcast_in_dim(x, (x.shape[0], there, wanted // there, *x.shape[2:]), (0, 1, 3, 4))
    return li.reshape(wide, (x.shape[0], wanted, *x.shape[2:]))

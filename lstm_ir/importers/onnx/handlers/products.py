"""Matrix products, and sums of products written as letters."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.letters import agreed_einsum
from lstm_ir.importers.onnx.call import Call
from lstm_ir.importers.onnx.table import taken
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.graph import Value


@taken("MatMul", 1, 9, 13)
def matmul(c: Call) -> Value:
    """NumPy's matmul."""
    a, b = c.value(0), c.value(1)
    return agreed_matmul(c, a, b)


def agreed_matmul(c: Call, a: Value, b: Value) -> Value:
    """a @ b, whose inner sizes are one."""
    if not (a.rank and b.rank):
        raise NodeRefusedError("an operand is a scalar")
    c.agree("columns of the first and rows of the second", a.shape[-1], b.shape[max(0, b.rank - 2)])
    return li.matmul(a, b)


@taken("Gemm", 7, 9, 11, 13, refused="integers with alpha or beta other than 1")
def gemm(c: Call) -> Value:
    """alpha A B + beta C, with A and B transposed as the attributes say."""
    a, b = (li.transpose(v) if c.flag(f) else v for v, f in ((c.value(0), "transA"), (c.value(1), "transB")))
    alpha, beta = c.real("alpha", 1.0), c.real("beta", 1.0)
    if a.rank != 2 or b.rank != 2:
        raise NodeRefusedError(f"takes two matrices, got {a.type} and {b.type}")
    y = _times(agreed_matmul(c, a, b), alpha)
    added = c.maybe(2)
    if added is None:
        return y
    return y + li.broadcast_to(_times(added, beta), y.shape)


def _times(x: Value, factor: float) -> Value:
    if factor == 1.0:
        return x
    if not x.dtype.is_float:
        raise NodeRefusedError(f"a product of {x.dtype} with {factor} is not taken")
    return x * factor


@taken("Einsum", 12, 28)
def einsum(c: Call) -> Value:
    """Products summed over the letters that the result does not have."""
    return agreed_einsum(c.word("equation"), c.values(), c.agree)

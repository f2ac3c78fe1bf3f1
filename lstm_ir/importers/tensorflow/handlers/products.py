"""Matrix products, and sums of products written as letters."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.letters import agreed_einsum
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.tensorflow.call import Call
from lstm_ir.importers.tensorflow.table import taken
from lstm_ir.ir.graph import Value


@taken("MatMul")
def matmul(c: Call) -> Value:
    """The product of two matrices, each as it is or transposed."""
    a, b = c.value(0), c.value(1)
    if a.rank != 2 or b.rank != 2:
        raise NodeRefusedError(f"takes two matrices, got {a.type} and {b.type}")
    a = li.transpose(a) if c.flag("transpose_a") else a
    b = li.transpose(b) if c.flag("transpose_b") else b
    return _agreed(c, a, b)


@taken("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(c: Call) -> Value:
    """Products of matrices in the last two axes; the others broadcast."""
    a, b = c.value(0), c.value(1)
    for name in ("grad_x", "grad_y"):  # of TensorFlow's own gradients: whether they transpose
        c.flag(name)
    if min(a.rank, b.rank) < 2:
        raise NodeRefusedError(f"takes matrices, got {a.type} and {b.type}")
    a = li.swapaxes(a, -1, -2) if c.flag("adj_x") else a
    b = li.swapaxes(b, -1, -2) if c.flag("adj_y") else b
    return _agreed(c, a, b)


def _agreed(c: Call, a: Value, b: Value) -> Value:
    c.agree("columns of the first and rows of the second", a.shape[-1], b.shape[-2])
    return li.matmul(a, b)


@taken("BiasAdd")
def bias_add(c: Call) -> Value:
    """A number added for each channel: the last axis, or the second one."""
    x, b = c.value(0), c.value(1)
    order = c.word("data_format", "NHWC")
    if order not in ("NHWC", "NCHW"):
        raise NodeRefusedError(f"data_format is {order!r}")
    axis = 1 if order == "NCHW" else x.rank - 1
    if b.rank != 1 or not 0 <= axis < x.rank:
        raise NodeRefusedError(f"takes a vector for an axis, got {x.type} and {b.type}")
    c.agree("channels", x.shape[axis], b.shape[0])
    return x + (b if axis == x.rank - 1 else li.broadcast_in_dim(b, x.shape, (axis,)))


@taken("Einsum")
def einsum(c: Call) -> Value:
    """Products summed over the letters that the result does not have."""
    return agreed_einsum(c.word("equation"), c.values(), c.agree)

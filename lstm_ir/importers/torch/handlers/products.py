"""Products of matrices."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.torch.call import Call, as_value
from lstm_ir.importers.torch.table import taken
from lstm_ir.ir.graph import Value


@taken("aten.linear.default", rows=True)
def linear(c: Call) -> Value:
    """x [..., I] times the transpose of w [O, I], and a bias [O]."""
    x, w, b = c.tensor("input"), c.tensor("weight"), c.optional("bias")
    if w.rank == 1:
        y = li.sum(x * w, -1)
        return y if b is None else y + b
    return li.dense(x, w, b)


@taken("aten.matmul.default", "aten.mm.default", "aten.bmm.default", "aten.mv.default", "aten.dot.default")
def matmul(c: Call) -> Value:
    """The product of matrices, in batches."""
    second = next(n for n in ("other", "mat2", "vec", "tensor") if c.given(n))
    return li.matmul(c.tensor("self"), c.tensor(second))


@taken("aten.addmm.default", "aten.baddbmm.default", "aten.addbmm.default", "aten.addmv.default")
def addmm(c: Call) -> Value:
    """beta * self + alpha * the product."""
    names = {"aten.addmm.default": ("mat1", "mat2"), "aten.addmv.default": ("mat", "vec")}
    a, b = (c.tensor(n) for n in names.get(c.name, ("batch1", "batch2")))
    y = li.matmul(a, b)
    if c.name == "aten.addbmm.default":
        y = li.sum(y, 0)
    alpha, beta = c.any("alpha", 1), c.any("beta", 1)
    y = y if alpha == 1 else y * as_value(alpha, y.dtype)
    first = c.tensor("self")
    if beta == 0:  # what is not a number there does not count either
        return y
    return y + (first if beta == 1 else first * as_value(beta, first.dtype))


@taken("aten.einsum.default")
def einsum(c: Call) -> Value:
    """Sums of products, by letters for axes."""
    c.any("path")
    return li.einsum(c.word("equation").replace(" ", ""), *c.tensors("tensors"))


@taken("aten.outer.default", "aten.ger.default")
def outer(c: Call) -> Value:
    """Every product of two lists."""
    return li.outer(c.tensor("self"), c.tensor("vec2"))


@taken("aten.bilinear.default")
def bilinear(c: Call) -> Value:
    """x w y for each of O matrices w [O, I, J]."""
    x, y, w, b = c.tensor("input1"), c.tensor("input2"), c.tensor("weight"), c.optional("bias")
    found = li.einsum("...i,oij,...j->...o", x, w, y)
    return found if b is None else found + b


@taken("aten.scaled_dot_product_attention.default", refused="dropout; grouped queries")
def attention(c: Call) -> Value:
    """Attention of queries [..., T, D] over keys and values."""
    q, k, v, mask = c.tensor("query"), c.tensor("key"), c.tensor("value"), c.optional("attn_mask")
    if c.real("dropout_p", 0.0):
        raise NodeRefusedError("dropout inside attention is not taken")
    if c.flag("enable_gqa"):
        raise NodeRefusedError("grouped queries are not taken")
    scale = c.real("scale") if c.given("scale") else None
    return li.attention(q, k, v, mask, causal=c.flag("is_causal"), scale=scale)

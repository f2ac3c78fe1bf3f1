"""Lowering of stencil: a kernel on CPUs, products elsewhere. Sums of two-byte floats are in float32."""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir.backends.emit.conversion import apart
from lstm_ir.backends.emit.emitter import Emitter, lower
from lstm_ir.backends.kernels import lowering as kernels
from lstm_ir.backends.lower.beside_products import meets_a_mask
from lstm_ir.backends.lower.linear import sum_type
from lstm_ir.ir.graph import Graph, Node
from lstm_ir.ir.leaf import parameter
from lstm_ir.ops.primitive.stencil import Taps, products


@lower("stencil")
def _stencil(e: Emitter, n: Node, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    to = sum_type(n.types[0])
    lhs, rhs = (
        apart(e, e.convert(v, x.type, to.dtype), x, to.dtype) for v, x in zip((lhs, rhs), n.inputs, strict=True)
    )
    out = kernels.lower_stencil(e, n, lhs, rhs, to) if e.has_cpu_kernels else None
    if out is None:
        x, w = (parameter(f"x{k}", v.type.with_dtype(to.dtype)) for k, v in enumerate(n.inputs))
        y = products(x, w, Taps.of(n.attrs), n.attrs["height"], n.attrs["width"])
        (out,) = e.graph(Graph("stencil", [x, w], [y]), [lhs, rhs])
        if e.target is not None and e.target.kind == "cpu" and meets_a_mask(e, n):
            out = e.barrier(out, to)
    return e.convert(out, to, n.types[0].dtype)

"""Lowering of stencil: a kernel on CPUs, products elsewhere."""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir.backends.emit.emitter import Emitter, lower
from lstm_ir.backends.kernels import lowering as kernels
from lstm_ir.ir.graph import Graph, Node
from lstm_ir.ir.leaf import parameter
from lstm_ir.ops.primitive.stencil import Taps, products


@lower("stencil")
def _stencil(e: Emitter, n: Node, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    if e.has_cpu_kernels:
        done = kernels.lower_stencil(e, n, lhs, rhs)
        if done is not None:
            return done
    x, w = (parameter(name, v.type) for name, v in zip(("x", "w"), n.inputs, strict=True))
    y = products(x, w, Taps.of(n.attrs), n.attrs["height"], n.attrs["width"])
    return e.graph(Graph("stencil", [x, w], [y]), [lhs, rhs])[0]

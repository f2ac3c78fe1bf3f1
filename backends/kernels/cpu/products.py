"""Products of many rows with a matrix by the kernels of loops.

IREE's own product packs its rows, runs, and unpacks; the kernel reads rows where they are.
"""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir import ops
from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.kernels.body.products import rows_product
from lstm_ir.backends.kernels.call.given import given
from lstm_ir.backends.kernels.cpu.machine import FEW_ROWS, SHARED_MATRIX, SMALL_MATRIX, WORTH
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Graph, Node
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.moves import stored_narrow
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.linear import free_axes


def lower_product(e: Emitter, n: Node, lhs: ir.Value, rhs: ir.Value) -> ir.Value | None:
    """dot_general [.., K] x matrix by a kernel; None where the compiler's own is as good."""
    a, b, at = n.inputs[0].type, n.inputs[1].type, n.attrs
    narrow = stored_narrow(n.inputs[1])
    lb, lc, rc = (at["lhs_batching_dimensions"], at["lhs_contracting_dimensions"], at["rhs_contracting_dimensions"])
    assert e.target is not None
    if lb or a.dtype not in (DType.f32, DType.f64):
        return None
    if b.rank != 2 or not b.is_static or len(lc) != 1 or lc[0] != a.rank - 1 or a.rank < 2:
        return None
    if not e.at_top:
        return None  # inside a loop, weights might be packed in every step
    if e.options.helpers and not given(lhs):
        return None  # what publishes its work runs in every call
    rows = dims.product(tuple(a.shape[i] for i in free_axes(a.rank, lb, lc)))
    work = int(b.shape[0]) * int(b.shape[1])  # type: ignore[arg-type]
    few = isinstance(rows, int) and (rows < FEW_ROWS or rows * work < WORTH)
    if few and not narrow:  # IREE's product reads weights in fewer bits slower than f32, the kernel faster
        if not e.options.helpers or work < SHARED_MATRIX:
            return None
    if work < SMALL_MATRIX:
        return None
    if narrow:  # the kernel widens them in registers
        b, rhs = n.inputs[1].node.inputs[0].type, rhs.owner.operands[0]
    x, w = parameter("x", a), parameter("w", b)
    flat = ops.reshape(x, (rows, a.shape[-1])) if a.rank > 2 else x
    out = rows_product(flat, w, rc[0])
    graph = Graph("product", [x, w], [ops.reshape(out, n.types[0].shape)])
    return e.graph(graph, [lhs, rhs])[0]

"""Products of many rows with a matrix, by the same kernels: a loop of one step without carries.

IREE's own product packs its rows, runs, and unpacks; the kernel reads rows where they are.
"""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir import ops
from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.kernels.body.origin import given
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive.linear import free_axes
from lstm_ir.ops.scan.node import STEP, scan_node

WORTH = 1 << 21  # multiplications from which a kernel is worth its compile time
FEW = 16  # rows from which IREE's own product is slower on one thread
SHARED = 1 << 19  # elements of a matrix from which members that read a part each are faster


def rows_product(rows: Value, matrix: Value, k_axis: int) -> Value:
    """[M, K] x a matrix whose axis `k_axis` has K: [M, N], as a loop that a kernel takes."""
    one = ops.reshape(rows, (1, *rows.shape))
    step, w = parameter("step", STEP), parameter("w", matrix.type)
    x = parameter("x", rows.type)
    wide = w if w.dtype is x.dtype else ops.convert(w, x.dtype)
    body = Graph("product", [step, w, x], [ops.dot_general(x, wide, ((1,), (k_axis,)))])
    node = scan_node(body, (matrix,), (), (one,), length=1, reverse=(False, False))
    out = node.values[0]
    return ops.reshape(out, out.shape[1:])


def offerable(graph: Graph) -> int:
    """Loops and products whose kernels helpers may take part in, if they become kernels.

    Not those of rows that weights alone decide: see `lower_product`.
    """
    called = set(graph.params)  # what a call brings, and what it is made of
    found = 0
    for n in graph.nodes:
        if any(v in called for v in n.inputs):
            called.update(n.values)
        if n.op.name == "dot_general":
            rows = n.inputs[0]
            of_rows = n.attrs["lhs_contracting_dimensions"] == (rows.type.rank - 1,)
            found += rows in called or not of_rows
        else:
            found += n.op.name == "scan"
    return found


def lower_product(e: Emitter, n: Node, lhs: ir.Value, rhs: ir.Value) -> ir.Value | None:
    """dot_general [.., K] x matrix by a kernel; None where the compiler's own is as good."""
    a, b, at = n.inputs[0].type, n.inputs[1].type, n.attrs
    lb, lc, rc = (
        at["lhs_batching_dimensions"],
        at["lhs_contracting_dimensions"],
        at["rhs_contracting_dimensions"],
    )
    if (
        e.target is None
        or not e.options.kernels
        or e.target.kind != "cpu"
        or lb
        or a.dtype not in (DType.f32, DType.f64)
    ):
        return None
    if b.rank != 2 or not b.is_static or len(lc) != 1 or lc[0] != a.rank - 1 or a.rank < 2:
        return None
    if ir.InsertionPoint.current.block.owner.operation.name != "func.func":
        return None  # inside a loop, weights might be packed in every step
    if e.options.helpers and not given(lhs):
        return None  # what offers its work runs in every call
    rows = dims.product(tuple(a.shape[i] for i in free_axes(a.rank, lb, lc)))
    work = int(b.shape[0]) * int(b.shape[1])  # type: ignore[arg-type]
    if isinstance(rows, int) and (rows < FEW or rows * work < WORTH):
        if not e.options.helpers or work < SHARED:
            return None
    if work < 1 << 14:
        return None
    x, w = parameter("x", a), parameter("w", b)
    flat = ops.reshape(x, (rows, a.shape[-1])) if a.rank > 2 else x
    out = rows_product(flat, w, rc[0])
    graph = Graph("product", [x, w], [ops.reshape(out, n.types[0].shape)])
    return e.graph(graph, [lhs, rhs])[0]

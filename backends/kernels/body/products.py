"""Products of many rows with a matrix, and rows of a table, as loops that a kernel takes: of one step, no carries."""

from __future__ import annotations

from lstm_ir import ops
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.reach import reached
from lstm_ir.ops.scan.node import STEP, scan_node


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


def picked_rows(table: Value, indices: Value) -> Value:
    """Rows of [V, N] by [M] indices: [M, N], as a loop that a kernel takes."""
    step, x, at = parameter("step", STEP), parameter("table", table.type), parameter("indices", indices.type)
    body = Graph("rows", [step, x, at], [ops.take(x, at)])
    one = ops.reshape(indices, (1, *indices.shape))
    (out,) = scan_node(body, (table,), (), (one,), length=1, reverse=(False, False)).values
    return ops.reshape(out, out.shape[1:])


def publishable(graph: Graph) -> int:
    """Loops, products, stencils and rows of tables whose kernels helpers may take part in, if they become kernels.

    Not those of rows that weights alone decide: see `cpu/products.py`.
    """
    called = reached(graph.nodes, graph.params)
    found = 0
    for n in graph.nodes:
        if n.op.name == "dot_general":
            rows = n.inputs[0]
            of_rows = n.attrs["lhs_contracting_dimensions"] == (rows.type.rank - 1,)
            found += rows in called or (not of_rows and n.inputs[1] in called)
        elif n.op.name == "stencil_grad":
            found += any(v in called for v in n.inputs)
        elif n.op.name == "gather":
            found += n.inputs[1] in called
        else:
            found += n.op.name == "scan" or (n.op.name == "stencil" and n.inputs[0] in called)
    return found

"""Rows of a table that indices pick, as an embedding has them, by the kernels of loops.

A row lies in memory as one piece, and vectors copy it; IREE's own reads it element by element.
"""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir import ops
from lstm_ir.backends.emit.emitter import Emitter
from lstm_ir.backends.kernels.body.products import picked_rows
from lstm_ir.backends.kernels.call.given import given
from lstm_ir.backends.kernels.cpu.machine import PICKED
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Graph, Node
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.types import DType

_KEPT = (DType.f32, DType.f64, DType.i32)


def lower_table_rows(e: Emitter, n: Node, table: ir.Value, indices: ir.Value) -> ir.Value | None:
    """gather along the first axis by i32 indices, which the kernel moves into the table; None where there is little to
    copy, and in loops."""
    t, at = n.inputs[0].type, n.inputs[1].type
    if n.attrs["axis"] or t.rank < 2 or not t.is_static or t.dtype not in _KEPT or 0 in (*t.shape, *at.shape):
        return None
    width, count = dims.product(t.shape[1:]), dims.product(at.shape)
    assert isinstance(width, int)
    if not e.at_top or (isinstance(count, int) and width * count < PICKED):
        return None
    if e.options.helpers and not given(indices):
        return None  # what publishes its work runs in every call
    x, rows = parameter("table", t), parameter("indices", at.with_dtype(DType.i32))
    found = picked_rows(ops.reshape(x, (t.shape[0], width)), ops.reshape(rows, (count,)))
    graph = Graph("rows", [x, rows], [ops.reshape(found, n.types[0].shape)])
    return e.graph(graph, [table, indices])[0]

"""Lowering of stencil and of its gradient by taps: a kernel on CPUs, products elsewhere.

Sums of two-byte floats are in float32.
"""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir.backends.emit.conversion import apart
from lstm_ir.backends.emit.emitter import Emitter, lower
from lstm_ir.backends.kernels import lowering as kernels
from lstm_ir.backends.lower.beside_products import meets_a_mask
from lstm_ir.backends.lower.elementwise import compute_type
from lstm_ir.ir.graph import Graph, Node, Value
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.types import TensorType
from lstm_ir.ops.primitive.planes import products, tap_products
from lstm_ir.ops.primitive.stencil import Taps


@lower("stencil")
def _stencil(e: Emitter, n: Node, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    to, pair = compute_type(n.types[0]), _in_sum_type(e, n, lhs, rhs)
    taps = Taps.of(n.attrs)
    out = None
    if e.has_cpu_kernels:
        out = kernels.lower_stencil(e, n, *pair, to)
    if out is None:
        x, w = _operands(n, to)
        out = _by_others(e, n, [x, w], products(x, w, taps, n.attrs["height"], n.attrs["width"]), pair)
    return e.convert(out, to, n.types[0].dtype)


@lower("stencil_grad")
def _stencil_grad(e: Emitter, n: Node, lhs: ir.Value, ct: ir.Value) -> ir.Value:
    to, pair = compute_type(n.types[0]), _in_sum_type(e, n, lhs, ct)
    out = kernels.lower_stencil_taps(e, n, *pair, to) if e.has_cpu_kernels else None
    if out is None:
        x, y = _operands(n, to)
        out = _by_others(e, n, [x, y], tap_products(x, y, Taps.of(n.attrs)), pair)
    return e.convert(out, to, n.types[0].dtype)


def _in_sum_type(e: Emitter, n: Node, lhs: ir.Value, rhs: ir.Value) -> tuple[ir.Value, ir.Value]:
    dtype = compute_type(n.types[0]).dtype
    x, y = n.inputs
    return apart(e, e.convert(lhs, x.type, dtype), x, dtype), apart(e, e.convert(rhs, y.type, dtype), y, dtype)


def _operands(n: Node, to: TensorType) -> list[Value]:
    return [parameter(f"x{k}", v.type.with_dtype(to.dtype)) for k, v in enumerate(n.inputs)]


def _by_others(e: Emitter, n: Node, given: list[Value], out: Value, pair: tuple[ir.Value, ir.Value]) -> ir.Value:
    """By other primitives."""
    (found,) = e.graph(Graph("stencil", given, [out]), list(pair))
    if e.target is not None and e.target.kind == "cpu" and meets_a_mask(e, n):
        found = e.barrier(found, out.type)
    return found

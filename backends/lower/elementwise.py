"""Lowering of leaves and of elementwise ops that StableHLO has. Two-byte floats compute in f32."""

from __future__ import annotations

from iree.compiler import ir

from lstm_ir.backends.emit.arithmetic import compare
from lstm_ir.backends.emit.emitter import Emitter, lower
from lstm_ir.backends.emit.unseen import without_zero
from lstm_ir.ir.graph import Node
from lstm_ir.ir.types import DType, TensorType

_ARITHMETIC = (
    "add", "subtract", "multiply", "maximum", "minimum", "negate", "sign", "floor", "ceil",
    "round_nearest_even", "exponential", "log", "logistic", "sqrt", "rsqrt",
)  # fmt: skip


def compute_type(t: TensorType) -> TensorType:
    """The type that elements of `t` are computed and summed in."""
    return t.with_dtype(t.dtype.compute_dtype)


@lower(*_ARITHMETIC)
def _arithmetic(e: Emitter, n: Node, *operands: ir.Value) -> ir.Value:
    t = n.types[0]
    if n.op.name == "sign" and not t.dtype.is_signed:
        return e.hlo("minimum", [operands[0], e.full(1, t)], t)
    inside = compute_type(t)
    if n.op.name == "subtract" and not t.dtype.is_float and not t.is_static and e.target is not None:
        # x - x becomes a literal 0 of open size, which there is not; so does what only IREE finds to be that
        return e.hlo("add", [operands[0], e.hlo("negate", [operands[1]], t)], t)
    if n.op.name == "ceil" and t.dtype is DType.f64 and e.target is not None:
        # no f64 ceil links for baseline x86-64; this one is exact, and keeps -0 and NaN
        below = e.hlo("floor", [e.hlo("negate", operands, t)], t)
        return e.hlo("negate", [below], t)
    given = [e.convert(v, t, inside.dtype) for v in operands]
    if n.op.name == "multiply":
        given = [without_zero(e, v, x, inside) for v, x in zip(given, n.inputs, strict=True)]
    if n.op.name == "negate" and t.dtype.is_float and e.target is not None and e.target.kind != "cpu":
        # of a sum of negated elements IREE makes a reduction by subtraction, which it cannot tile for GPUs
        return e.convert(e.hlo("multiply", [*given, e.full(-1, inside)], inside), inside, t.dtype)
    return e.convert(e.hlo(n.op.name, given, inside), inside, t.dtype)


@lower("and", "or", "xor", "not", "is_finite", "select", "bitcast_convert")
def _bits(e: Emitter, n: Node, *operands: ir.Value) -> ir.Value:
    return e.hlo(n.op.name, operands, n.types[0])


@lower("abs")
def _abs(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    return e.hlo("abs", [x], n.types[0]) if n.types[0].dtype.is_signed else x


@lower("clamp")
def _clamp(e: Emitter, n: Node, low: ir.Value, x: ir.Value, high: ir.Value) -> ir.Value:
    """min(max(x, low), high), which keeps NaN."""
    t = n.types[0]
    return e.hlo("minimum", [e.hlo("maximum", [x, low], t), high], t)


@lower("constant")
def _constant(e: Emitter, n: Node) -> ir.Value:
    return e.data(n.attrs["value"])


@lower("weight")
def _weight(e: Emitter, n: Node) -> ir.Value:
    if e.leaf is None:
        raise e.refuse(n, "is read inside a body; pass it to the loop as a constant")
    return e.leaf(n)


@lower("dim")
def _dim(e: Emitter, n: Node) -> ir.Value:
    d = n.attrs["size"]
    if isinstance(d, int):
        return e.constant(d, n.types[0].dtype)
    return e.scalar(e.size(d), n.types[0].dtype, own=True)


@lower("compare")
def _compare(e: Emitter, n: Node, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    return compare(e, n.attrs["direction"], lhs, rhs, n.types[0])

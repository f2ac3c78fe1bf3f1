"""Canonical forms of arithmetic: rewrites that give the same bits (NaN payloads apart)."""

from __future__ import annotations

import math

from lstm_ir.ir.graph import Node, Value, make
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.literals import splat
from lstm_ir.ir.opdef import Trait
from lstm_ir.ir.types import DType
from lstm_ir.ops.primitive import elementwise as e
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim
from lstm_ir.passes.rewrite import Rules, rule

RULES: Rules = {}


def _is(v: Value, number: float) -> bool:
    got = splat(v)
    if got is None or isinstance(got, bool):
        return False
    return bool(got == number) and (not v.dtype.is_float or math.copysign(1, got) == math.copysign(1, number))


@rule(RULES, "add")
def _add_zero(n: Node) -> Value | None:
    """x + 0; for floats x + -0.0, since -0.0 + 0.0 is 0.0."""
    a, b = n.inputs
    zero = -0.0 if a.dtype.is_float else 0
    if _is(b, zero) or (_is(b, 0.0) and _never_minus_zero(a)):
        return a
    return b if _is(a, zero) or (_is(a, 0.0) and _never_minus_zero(b)) else None


def _never_minus_zero(v: Value) -> bool:
    return v.op in ("exponential", "logistic", "abs", "cosine")


@rule(RULES, "subtract")
def _subtract_zero(n: Node) -> Value | None:
    return n.inputs[0] if _is(n.inputs[1], 0.0) else None


@rule(RULES, "multiply")
def _multiply_one(n: Node) -> Value | None:
    a, b = n.inputs
    return a if _is(b, 1.0) else b if _is(a, 1.0) else None


@rule(RULES, "divide")
def _divide_one(n: Node) -> Value | None:
    return n.inputs[0] if _is(n.inputs[1], 1.0) else None


@rule(RULES, "reduce_sum")
def _sum_of_nothing(n: Node) -> Value | None:
    """0, which lowering keeps from drivers that take 0 / 0 for 0."""
    (x,) = n.inputs
    if all(x.shape[d] != 0 for d in n.attrs["dimensions"]):
        return None
    return broadcast_in_dim(constant(0, x.dtype), n.types[0].shape, ())


@rule(RULES, "negate", "not")
def _twice_negated(n: Node) -> Value | None:
    x = n.inputs[0]
    return x.node.inputs[0] if x.op == n.op.name else None


@rule(RULES, "abs")
def _abs_of_abs(n: Node) -> Value | None:
    x = n.inputs[0]
    if x.op == "abs":
        return x
    return e.abs(x.node.inputs[0]) if x.op == "negate" and x.dtype.is_signed else None


@rule(RULES, "add")
def _add_of_negated(n: Node) -> Value | None:
    a, b = n.inputs
    if b.op == "negate":
        return e.subtract(a, b.node.inputs[0])
    return e.subtract(b, a.node.inputs[0]) if a.op == "negate" else None


@rule(RULES, "subtract")
def _subtract_negated(n: Node) -> Value | None:
    a, b = n.inputs
    return e.add(a, b.node.inputs[0]) if b.op == "negate" else None


@rule(RULES, "maximum", "minimum", "and", "or")
def _same_twice(n: Node) -> Value | None:
    return n.inputs[0] if n.inputs[0] is n.inputs[1] else None


@rule(RULES, "and", "or")
def _logic_with_constant(n: Node) -> Value | None:
    """true and x, false or x."""
    a, b = n.inputs
    if a.dtype is not DType.i1:
        return None
    neutral, other = (True, False) if n.op.name == "and" else (False, True)
    for x, y in ((a, b), (b, a)):
        known = splat(y)
        if known is neutral:
            return x
        if known is other:
            return y
    return None


@rule(RULES, "clamp")
def _clamp_of_all(n: Node) -> Value | None:
    low, x, high = n.inputs
    return x if x.dtype.is_float and _is(low, -math.inf) and _is(high, math.inf) else None


@rule(RULES, "select")
def _select_known(n: Node) -> Value | None:
    pred, a, b = n.inputs
    known = splat(pred)
    if known is not None:
        return a if known else b
    if a is b:
        return a
    return e.select(pred.node.inputs[0], b, a) if pred.op == "not" else None


@rule(RULES, "select")
def _select_within_select(n: Node) -> Value | None:
    """The same condition again is known.

    More than tidiness: IREE 3.13 finds this too, after it fused producers that have several uses,
    and then takes another of that dispatch's results for the one that became equal.
    """
    pred, a, b = n.inputs
    if a.op == "select" and a.node.inputs[0] is pred:
        return e.select(pred, a.node.inputs[1], b)
    if b.op == "select" and b.node.inputs[0] is pred:
        return e.select(pred, a, b.node.inputs[2])
    return None


_WIDER = {
    "f16": ("f32", "f64"), "bf16": ("f32", "f64"), "f32": ("f64",), "i8": ("i32", "i64"),
    "u8": ("i32", "u32", "i64"), "i32": ("i64",), "u32": ("i64",),
    "i1": ("i8", "u8", "i32", "u32", "i64"),
}  # fmt: skip
"""Conversions that lose nothing, integers and floats apart."""


@rule(RULES, "convert")
def _convert_of_convert(n: Node) -> Value | None:
    """After a conversion that loses nothing, only the second one counts."""
    x = n.inputs[0]
    if x.dtype is n.attrs["dtype"]:
        return x
    if x.op != "convert":
        return None
    base = x.node.inputs[0]
    return e.convert(base, n.attrs["dtype"]) if x.dtype.value in _WIDER.get(base.dtype.value, ()) else None


@rule(RULES, "convert")
def _convert_of_broadcast(n: Node) -> Value | None:
    """Converted before it is repeated."""
    x = n.inputs[0]
    if x.op != "broadcast_in_dim":
        return None
    inner = e.convert(x.node.inputs[0], n.attrs["dtype"])
    return broadcast_in_dim(inner, x.shape, x.node.attrs["broadcast_dimensions"])


@rule(RULES, "*")
def _elementwise_of_broadcasts(n: Node) -> Value | None:
    """Computed once per element before it is repeated."""
    if Trait.elementwise not in n.op.traits or n.op.name in ("convert", "in_range") or not n.inputs:
        return None
    if any(v.op != "broadcast_in_dim" for v in n.inputs):
        return None
    bases = [v.node.inputs[0] for v in n.inputs]
    widest = max(range(len(bases)), key=lambda i: bases[i].rank)
    shape, places = bases[widest].shape, n.inputs[widest].node.attrs["broadcast_dimensions"]
    narrow = []
    for v, base in zip(n.inputs, bases, strict=True):
        if base.shape == shape and v.node.attrs["broadcast_dimensions"] == places:
            narrow.append(base)
        elif base.rank == 0:
            narrow.append(broadcast_in_dim(base, shape, ()))
        else:
            return None
    inner = make(n.op, *narrow, **n.attrs).values[0]
    return broadcast_in_dim(inner, n.types[0].shape, places)

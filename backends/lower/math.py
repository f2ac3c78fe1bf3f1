"""tanh, expm1, log1p, power, atan2, sine and cosine.

Formulas where IREE has no f64 function, or none that is accurate.
"""

from __future__ import annotations

import math

from iree.compiler import ir

from lstm_ir.backends.emit.arithmetic import Calc
from lstm_ir.backends.emit.emitter import Emitter, lower
from lstm_ir.backends.emit.formulas import angle, below_zero, expm1, expm1_single, log1p, log1p_single, tanh64, wave
from lstm_ir.backends.lower.elementwise import compute_type
from lstm_ir.ir.graph import Node
from lstm_ir.ir.types import DType, TensorType


@lower("tanh")
def _tanh(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    t = n.types[0]
    if t.dtype is DType.f64:
        return tanh64(Calc(e, t), x)
    inside = compute_type(t)
    return e.convert(e.hlo("tanh", [e.convert(x, t, inside.dtype)], inside), inside, t.dtype)


@lower("exponential_minus_one", "log_plus_one")
def _near_zero(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    t, exp = n.types[0], n.op.name == "exponential_minus_one"
    if t.dtype is DType.f64 and e.target is not None:
        return (expm1 if exp else log1p)(Calc(e, t), x)
    inside = compute_type(t)
    wide = e.convert(x, t, inside.dtype)
    if e.is_spirv:
        out = (expm1_single if exp else log1p_single)(Calc(e, inside), wide)
    else:
        out = e.hlo(n.op.name, [wide], inside)
    return e.convert(out, inside, t.dtype)


def _inside(e: Emitter, t: TensorType) -> TensorType:
    """f64 on processors, where it costs little and f32 would lose digits; else f32."""
    free = e.target is None or e.target.kind == "cpu"
    return t.with_dtype(DType.f64) if free else compute_type(t)


@lower("power")
def _power(e: Emitter, n: Node, a: ir.Value, b: ir.Value) -> ir.Value:
    """exp(b log|a|), with the sign of a where b is odd; C's pow at 0, 1, infinities and NaN."""
    t, wide = n.types[0], _inside(e, n.types[0])
    c = Calc(e, wide)
    a, b = e.convert(a, t, wide.dtype), e.convert(b, t, wide.dtype)
    out = c.op("exponential", c.mul(b, c.op("log", c.op("abs", a))))
    half = c.mul(b, 0.5)
    # Not floor(b) == b: LLVM makes a call of trunc from it, which baseline x86-64 does not link.
    whole = c.compare("EQ", c.sub(b, c.op("floor", b)), 0.0)
    whole = c.either(whole, c.compare("EQ", c.op("abs", b), math.inf))
    odd = c.both(whole, c.compare("GT", c.sub(half, c.op("floor", half)), 0.0))
    below = c.compare("LT", a, 0.0)
    out = c.pick(c.both(below_zero(c, a), odd), c.op("negate", out), out)
    finite = c.compare("GT", a, -math.inf)
    broken = c.both(c.both(below, finite), e.hlo("not", [whole], c.logical))
    out = c.pick(broken, math.nan, out)
    turning = c.both(c.compare("EQ", a, -1.0), c.compare("EQ", c.op("abs", b), math.inf))
    one = c.either(c.compare("EQ", b, 0.0), c.either(c.compare("EQ", a, 1.0), turning))
    return e.convert(c.pick(one, 1.0, out), wide, t.dtype)


@lower("atan2")
def _atan2(e: Emitter, n: Node, y: ir.Value, x: ir.Value) -> ir.Value:
    t, wide = n.types[0], _inside(e, n.types[0])
    up, along = (e.convert(v, t, wide.dtype) for v in (y, x))
    return e.convert(angle(Calc(e, wide), up, along, wide.dtype is DType.f64), wide, t.dtype)


@lower("sine", "cosine")
def _sine(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    t, wide = n.types[0], _inside(e, n.types[0])
    double = wide.dtype is DType.f64
    out = wave(Calc(e, wide), e.convert(x, t, wide.dtype), n.op.name == "cosine", double)
    return e.convert(out, wide, t.dtype)

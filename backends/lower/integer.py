"""Lowering of division, remainder and shifts: no operand can trap or be undefined."""

from __future__ import annotations

import math

from iree.compiler import ir

from lstm_ir.backends.emit.arithmetic import Calc
from lstm_ir.backends.emit.emitter import Emitter, lower
from lstm_ir.backends.emit.regions import signed_back, signless
from lstm_ir.backends.emit.unseen import without_zero
from lstm_ir.backends.lower.elementwise import compute_type
from lstm_ir.ir.graph import Node
from lstm_ir.ir.types import DType


@lower("divide")
def _divide(e: Emitter, n: Node, a: ir.Value, b: ir.Value) -> ir.Value:
    """Integers: x / 0 has all bits set, MIN / -1 = MIN (an x86 processor traps on both)."""
    t = n.types[0]
    if t.dtype.is_float:
        inside = compute_type(t)
        given = [
            without_zero(e, e.convert(v, t, inside.dtype), x, inside) for v, x in zip((a, b), n.inputs, strict=True)
        ]
        return e.convert(e.hlo("divide", given, inside), inside, t.dtype)
    c = Calc(e, t)
    zero, minus = _special(c, b)
    quotient = c.div(a, _safe(c, b, zero, minus))
    if minus is not None:
        quotient = c.pick(minus, c.op("negate", a), quotient)
    return c.pick(zero, -1 if t.dtype.is_signed else 2**t.dtype.bits - 1, quotient)


@lower("remainder")
def _remainder(e: Emitter, n: Node, a: ir.Value, b: ir.Value) -> ir.Value:
    """Integers: x % 0 = x, x % -1 = 0."""
    t = n.types[0]
    if t.dtype.is_float:
        inside = compute_type(t)
        c = Calc(e, inside)
        out = _fmod(c, e.convert(a, t, inside.dtype), e.convert(b, t, inside.dtype))
        return e.convert(out, inside, t.dtype)
    c = Calc(e, t)
    zero, minus = _special(c, b)
    safe = _safe(c, b, zero, minus)
    # Through the quotient: SPIR-V code of a remainder loses the sign of a.
    return c.pick(zero, a, c.sub(a, c.mul(c.div(a, safe), safe)))


def _fmod(c: Calc, a: ir.Value, b: ir.Value) -> ir.Value:
    """a - b trunc(a / b) without rounding: IREE has no f64 fmod, and GPUs round f32's.

    A quotient of more than 53 bits (f32: 24) is taken off in parts, three times so many; of more,
    NaN.
    """
    size = c.op("abs", b)
    r = c.op("abs", a)
    for _ in range(3):
        q = c.op("floor", c.div(r, size))
        if c.t.dtype is DType.f64:
            q = _masked(c, q, -2)  # 52 bits: then no product below has more than 53
        q_high, q_low = _halves(c, q)
        b_high, b_low = _halves(c, size)
        for x, y in ((q_high, b_high), (q_high, b_low), (q_low, b_high), (q_low, b_low)):
            r = c.sub(r, c.mul(x, y))  # every product and every difference is exact
    # A quotient rounded up leaves a negative rest: the next part is then negative, and the last one is made good.
    r = c.pick(c.compare("LT", r, 0.0), c.add(r, size), r)
    r = c.pick(c.compare("GE", r, size), c.sub(r, size), r)
    r = c.pick(c.both(c.compare("GE", r, 0.0), c.compare("LT", r, size)), r, math.nan)
    finite = c.e.hlo("is_finite", [a], c.logical)
    r = c.pick(c.both(c.compare("EQ", size, math.inf), finite), c.op("abs", a), r)
    signed = c.pick(c.compare("LT", a, 0.0), c.op("negate", r), r)
    return c.pick(c.both(c.compare("EQ", a, 0.0), c.compare("EQ", r, 0.0)), a, signed)  # -0 keeps its sign


def _halves(c: Calc, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """x as the sum of two floats with half its bits each, by masking: nothing overflows."""
    high = _masked(c, x, -(2**27) if c.t.dtype is DType.f64 else -(2**12))
    return high, c.sub(x, high)


def _masked(c: Calc, x: ir.Value, mask: int) -> ir.Value:
    bits = c.t.with_dtype(DType.i64 if c.t.dtype is DType.f64 else DType.i32)
    held = c.e.hlo("bitcast_convert", [x], bits)
    held = c.e.hlo("and", [held, c.e.full(mask, bits)], bits)
    return c.e.hlo("bitcast_convert", [held], c.t)


def _special(c: Calc, b: ir.Value) -> tuple[ir.Value, ir.Value | None]:
    minus = c.compare("EQ", b, -1) if c.t.dtype.is_signed else None
    return c.compare("EQ", b, 0), minus


def _safe(c: Calc, b: ir.Value, zero: ir.Value, minus: ir.Value | None) -> ir.Value:
    """b, with 1 in place of 0 and -1."""
    return c.pick(zero if minus is None else c.either(zero, minus), 1, b)


@lower("shift_left", "shift_right_logical", "shift_right_arithmetic")
def _shift(e: Emitter, n: Node, a: ir.Value, b: ir.Value) -> ir.Value:
    """A count outside 0..width-1 gives 0, or the sign repeated."""
    t = n.types[0]
    c = Calc(e, t)
    inside = c.compare("LT", b, t.dtype.bits)
    if t.dtype.is_signed:
        inside = c.both(inside, c.compare("GE", b, 0))
    if n.op.name != "shift_right_arithmetic":
        return c.pick(inside, c.op(n.op.name, a, c.pick(inside, b, 0)), 0)
    count = c.pick(inside, b, t.dtype.bits - 1)
    x, twin = signless(e, a, t)
    by, _ = signless(e, count, t)
    return signed_back(e, e.hlo(n.op.name, [x, by], twin), t)

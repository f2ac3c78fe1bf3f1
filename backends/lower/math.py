"""tanh, power, sine and cosine.

Formulas where IREE has no f64 function, or none that is accurate.
"""

from __future__ import annotations

import math
from fractions import Fraction

from iree.compiler import ir

from lstm_ir.backends.emit.arithmetic import Calc
from lstm_ir.backends.emit.emitter import Emitter, lower
from lstm_ir.backends.lower.elementwise import in_f32
from lstm_ir.ir.graph import Node
from lstm_ir.ir.types import DType, TensorType

HALF_PI = Fraction(
    "1.57079632679489661923132169163975144209858469968755291048747229615390820314310449931401741"
)


@lower("tanh")
def _tanh(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    t = n.types[0]
    if t.dtype is DType.f64:
        return _tanh64(Calc(e, t), x)
    inside = in_f32(t)
    return e.convert(e.hlo("tanh", [e.convert(x, t, inside.dtype)], inside), inside, t.dtype)


def _tanh64(c: Calc, x: ir.Value) -> ir.Value:
    """-sign(x) u / (u + 2) with u = expm1(-2|x|), which neither overflows nor cancels."""
    u = c.op("exponential_minus_one", c.mul(c.op("abs", x), -2.0))
    return c.mul(c.op("sign", x), c.div(c.op("negate", u), c.add(u, 2.0)))


def _inside(e: Emitter, t: TensorType) -> TensorType:
    """f64 on processors, where it costs little and f32 would lose digits; else f32."""
    free = e.target is None or e.target.kind == "cpu"
    return t.with_dtype(DType.f64) if free else in_f32(t)


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
    negative = c.either(below, c.compare("LT", c.div(1.0, a), 0.0))  # -0 too
    out = c.pick(c.both(negative, odd), c.op("negate", out), out)
    finite = c.compare("GT", a, -math.inf)
    broken = c.both(c.both(below, finite), e.hlo("not", [whole], c.logical))
    out = c.pick(broken, math.nan, out)
    turning = c.both(c.compare("EQ", a, -1.0), c.compare("EQ", c.op("abs", b), math.inf))
    one = c.either(c.compare("EQ", b, 0.0), c.either(c.compare("EQ", a, 1.0), turning))
    return e.convert(c.pick(one, 1.0, out), wide, t.dtype)


@lower("sine", "cosine")
def _sine(e: Emitter, n: Node, x: ir.Value) -> ir.Value:
    t, wide = n.types[0], _inside(e, n.types[0])
    out = _wave(Calc(e, wide), e.convert(x, t, wide.dtype), n.op.name == "cosine")
    return e.convert(out, wide, t.dtype)


def _wave(c: Calc, x: ir.Value, cosine: bool) -> ir.Value:
    """sin(x) or cos(x) = +-sin(r) or +-cos(r) with x = k pi/2 + r, |r| <= pi/4.

    k is cut in two halves and pi/2 in pieces, so that every product is exact. Beyond 2^53 (f32:
    2^24) neighbouring floats lie further apart than the wave's slope: NaN.
    """
    double = c.t.dtype is DType.f64
    bits, pieces = (26, 5) if double else (12, 6)
    k = c.op("round_nearest_even", c.mul(x, 2 / math.pi))
    high = c.mul(c.op("round_nearest_even", c.mul(k, 2.0**-bits)), 2.0**bits)
    low = c.sub(k, high)
    r, rest = x, HALF_PI
    for i in range(pieces):
        scale = 2 ** (bits * (i + 1) - 1)
        piece = Fraction(math.floor(rest * scale), scale)
        rest -= piece
        for part in (high, low):
            r = c.sub(r, c.mul(part, float(piece)))
    square = c.mul(r, r)
    terms = 11 if double else 6
    odd = [(-1) ** i / math.factorial(2 * i + 1) for i in reversed(range(terms))]
    even = [(-1) ** i / math.factorial(2 * i) for i in reversed(range(terms))]
    sin, cos = c.mul(r, c.polynomial(square, odd)), c.polynomial(square, even)
    if cosine:
        k = c.add(k, 1.0)
    turn = c.sub(k, c.mul(c.op("floor", c.mul(k, 0.25)), 4.0))  # k mod 4
    swapped = c.either(c.compare("EQ", turn, 1.0), c.compare("EQ", turn, 3.0))
    value = c.pick(swapped, cos, sin)
    value = c.pick(c.compare("GE", turn, 2.0), c.op("negate", value), value)
    limit = 2.0**53 if double else 2.0**24
    return c.pick(c.compare("LE", c.op("abs", x), limit), value, math.nan)

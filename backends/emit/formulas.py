"""Functions as formulas, where IREE has none or an inexact one: for StableHLO and for kernels.

A formula is written once, over a `Calculator` of the one and one of the other.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Protocol, TypeVar

HALF_PI = Fraction("1.57079632679489661923132169163975144209858469968755291048747229615390820314310449931401741")
V = TypeVar("V")


class Calculator(Protocol[V]):
    """Elementwise ops over values of one type; a number stands for a value of that number."""

    def op(self, name: str, *xs: V | float) -> V:
        """An op by StableHLO's name."""

    def add(self, a: V | float, b: V | float) -> V:
        """a + b."""

    def sub(self, a: V | float, b: V | float) -> V:
        """a - b."""

    def mul(self, a: V | float, b: V | float) -> V:
        """a b."""

    def div(self, a: V | float, b: V | float) -> V:
        """a / b."""

    def polynomial(self, x: V, coefficients: Any) -> V:
        """The polynomial in x by Horner's rule, highest power first."""

    def compare(self, direction: str, a: V | float, b: V | float) -> V:
        """a EQ|NE|LT|LE|GT|GE b."""

    def either(self, a: V, b: V) -> V:
        """a or b, booleans."""

    def pick(self, p: V, a: V | float, b: V | float) -> V:
        """a where p, else b."""


def tanh64(c: Calculator[V], x: V) -> V:
    """-sign(x) u / (u + 2) with u = expm1(-2|x|), which neither overflows nor cancels."""
    u = expm1(c, c.mul(c.op("abs", x), -2.0))
    return c.mul(c.op("sign", x), c.div(c.op("negate", u), c.add(u, 2.0)))


def expm1(c: Calculator[V], x: V, terms: int = 15) -> V:
    """exp(x) - 1: its series near 0, where IREE's difference has no digit left, nor the sign of 0.

    terms: of the series; 15 for f64, 8 for f32.
    """
    series = c.polynomial(x, [1 / math.factorial(i + 1) for i in reversed(range(terms))])
    near = c.compare("LT", c.op("abs", x), 0.35)
    return c.pick(near, c.mul(x, series), c.op("exponential_minus_one", x))


def log1p(c: Calculator[V], x: V) -> V:
    """log(1 + x) in f64: log(u) x / (u - 1) with u = 1 + x, in which the rounding of u cancels."""
    u = c.add(x, 1.0)
    out = c.div(c.mul(c.op("log", u), x), c.sub(u, 1.0))
    out = c.pick(c.compare("EQ", u, math.inf), u, out)
    return c.pick(c.compare("EQ", u, 1.0), x, out)


def expm1_single(c: Calculator[V], x: V) -> V:
    """exp(x) - 1 in f32, where IREE has but the difference."""
    return expm1(c, x, 8)


def log1p_single(c: Calculator[V], x: V) -> V:
    """log(1 + x) in f32, where IREE has but that: 2 artanh(x / (x + 2)) by its series near 0.

    log(u) x / (u - 1) would not do: Vulkan's log may err by 2^-21 where u lies between 1/2 and 2.
    """
    s = c.div(x, c.add(x, 2.0))
    series = c.polynomial(c.mul(s, s), [2 / (2 * i + 1) for i in reversed(range(7))])
    near = c.compare("LT", c.op("abs", x), 0.4)
    return c.pick(near, c.mul(s, series), c.op("log_plus_one", x))


def angle(c: Calculator[V], y: V, x: V, double: bool) -> V:
    """atan2(y, x): the series of atan(u) with |u| <= sqrt(2) - 1, in the octant of |x| and |y|.

    atan(t) = pi/4 + atan((t - 1) / (t + 1)). A select chooses between computed values, so that NaN comes through.
    """
    up, along = c.op("abs", y), c.op("abs", x)
    steep = c.compare("GT", up, along)
    low, high = c.pick(steep, along, up), c.pick(steep, up, along)
    t = c.pick(c.compare("EQ", low, high), 1.0, c.div(low, high))  # infinite both
    t = c.pick(c.compare("EQ", c.add(low, high), 0.0), 0.0, t)
    far = c.compare("GT", t, math.sqrt(2) - 1)
    u = c.pick(far, c.div(c.sub(t, 1.0), c.add(t, 1.0)), t)
    series = c.polynomial(c.mul(u, u), [(-1) ** i / (2 * i + 1) for i in reversed(range(22 if double else 10))])
    out = c.mul(u, series)
    out = c.pick(far, c.add(out, math.pi / 4), out)
    out = c.pick(steep, c.sub(math.pi / 2, out), out)
    out = c.pick(below_zero(c, x), c.sub(math.pi, out), out)
    return c.pick(below_zero(c, y), c.op("negate", out), out)


def below_zero(c: Calculator[V], x: V) -> V:
    """Whether x is less than 0, or -0."""
    return c.either(c.compare("LT", x, 0.0), c.compare("LT", c.div(1.0, x), 0.0))


def wave(c: Calculator[V], x: V, cosine: bool, double: bool) -> V:
    """sin(x) or cos(x) = +-sin(r) or +-cos(r) with x = k pi/2 + r, |r| <= pi/4.

    k is cut in two halves and pi/2 in pieces, so that every product is exact. Beyond 2^53 (f32:
    2^24) neighbouring floats lie further apart than the wave's slope: NaN.
    """
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
    r = c.pick(c.compare("EQ", k, 0.0), x, r)  # -0 - -0 is 0
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

"""Gradients of the elementwise ops: cotangent in, one gradient per operand out.

Kinks: `abs` has 0 at 0. `maximum` and `minimum` give each operand half at a tie. `clamp` gives all
of it to the operand at a bound. `sqrt` has inf at 0, as its equation. `power` has 0 for an exponent
0, and for the exponent at base 0 (the limit). `atan2` has 0 at the origin and at infinities. Rounding, sign,
comparison and bit operations have none.
"""

from __future__ import annotations

import math

from lstm_ir.ir.graph import Node, Value
from lstm_ir.ir.pullback import Cts, only
from lstm_ir.ops.primitive import elementwise as e


def none(node: Node, cts: Cts) -> Cts:
    """No operand has a gradient."""
    return (None,) * len(node.args)


def add(node: Node, cts: Cts) -> Cts:
    """d(a + b)."""
    ct = only(cts)
    return ct, ct


def subtract(node: Node, cts: Cts) -> Cts:
    """d(a - b)."""
    ct = only(cts)
    return ct, -ct


def multiply(node: Node, cts: Cts) -> Cts:
    """d(a * b)."""
    ct, (a, b) = only(cts), node.inputs
    return ct * b, ct * a


def divide(node: Node, cts: Cts) -> Cts:
    """d(a / b) = da / b - y db / b."""
    b, y = node.inputs[1], node.values[0]
    da = only(cts) / b
    return da, -(da * y)


def remainder(node: Node, cts: Cts) -> Cts:
    """d(a - b trunc(a/b)), the quotient held; (a - y) / b is that integer up to rounding."""
    ct, (a, b) = only(cts), node.inputs
    return ct, -(ct * e.round((a - node.values[0]) / b))


def _larger(ct: Value, a: Value, b: Value) -> Value:
    """ct where a > b, half of it where they are equal, else 0."""
    return e.select(a > b, ct, e.select(e.equal(a, b), ct * 0.5, 0.0))


def maximum(node: Node, cts: Cts) -> Cts:
    """To the larger; half each at a tie."""
    ct, (a, b) = only(cts), node.inputs
    return _larger(ct, a, b), _larger(ct, b, a)


def minimum(node: Node, cts: Cts) -> Cts:
    """To the smaller; half each at a tie."""
    ct, (a, b) = only(cts), node.inputs
    return _larger(ct, b, a), _larger(ct, a, b)


def power(node: Node, cts: Cts) -> Cts:
    """b a^(b-1) and y log(a), kept finite at the points named above, derivatives of these too."""
    ct, (a, b), y = only(cts), node.inputs, node.values[0]
    exponent = e.select(e.equal(b, 0.0), 1.0, b) - 1.0
    flat = e.equal(a, 0.0) & (b >= 0.0)
    return ct * b * e.power(a, exponent), ct * y * e.log(e.select(flat, 1.0, a))


def atan2(node: Node, cts: Cts) -> Cts:
    """(x dy - y dx) / (x^2 + y^2), of operands that are at most 1: the squares neither overflow nor vanish."""
    ct, (y, x) = only(cts), node.inputs
    larger = e.maximum(e.abs(y), e.abs(x))
    end = e.equal(larger, 0.0) | e.equal(larger, math.inf)
    scale = e.select(end, 1.0, larger)
    v, u = (e.select(end, 0.0, z) / scale for z in (y, x))
    square = e.select(end, 1.0, v * v + u * u)
    by = ct / (square * scale)
    return by * u, -(by * v)


def bitcast(node: Node, cts: Cts) -> Cts:
    """None, but where the bits are read as what they were."""
    return (only(cts) if node.inputs[0].dtype is node.values[0].dtype else None,)


def negate(node: Node, cts: Cts) -> Cts:
    """d(-x)."""
    return (-only(cts),)


def abs_(node: Node, cts: Cts) -> Cts:
    """d|x| = sign(x) dx."""
    return (only(cts) * e.sign(node.inputs[0]),)


def exp(node: Node, cts: Cts) -> Cts:
    """y dx."""
    return (only(cts) * node.values[0],)


def expm1(node: Node, cts: Cts) -> Cts:
    """(y + 1) dx."""
    return (only(cts) * (node.values[0] + 1.0),)


def log(node: Node, cts: Cts) -> Cts:
    """dx / x."""
    return (only(cts) / node.inputs[0],)


def log1p(node: Node, cts: Cts) -> Cts:
    """dx / (1 + x)."""
    return (only(cts) / (node.inputs[0] + 1.0),)


def erf(node: Node, cts: Cts) -> Cts:
    """2/sqrt(pi) exp(-x^2) dx."""
    x = node.inputs[0]
    return (only(cts) * (e.exp(-(x * x)) * (2.0 / math.sqrt(math.pi))),)


def logistic(node: Node, cts: Cts) -> Cts:
    """y (1 - y) dx."""
    y = node.values[0]
    return (only(cts) * (y * (1.0 - y)),)


def tanh(node: Node, cts: Cts) -> Cts:
    """(1 - y^2) dx."""
    y = node.values[0]
    return (only(cts) * (1.0 - y * y),)


def sin(node: Node, cts: Cts) -> Cts:
    """cos(x) dx."""
    return (only(cts) * e.cos(node.inputs[0]),)


def cos(node: Node, cts: Cts) -> Cts:
    """-sin(x) dx."""
    return (-(only(cts) * e.sin(node.inputs[0])),)


def sqrt(node: Node, cts: Cts) -> Cts:
    """dx / (2 y)."""
    return (only(cts) * 0.5 / node.values[0],)


def rsqrt(node: Node, cts: Cts) -> Cts:
    """-y / (2 x) dx."""
    return (only(cts) * -0.5 * node.values[0] / node.inputs[0],)


def select(node: Node, cts: Cts) -> Cts:
    """To the side that was taken."""
    ct, pred = only(cts), node.inputs[0]
    return None, e.select(pred, ct, 0.0), e.select(pred, 0.0, ct)


def clamp(node: Node, cts: Cts) -> Cts:
    """To the bound that holds strictly, else to the operand."""
    ct, (low, x, high) = only(cts), node.inputs
    above = e.maximum(x, low) > high
    below = x < low
    rest = e.select(above, 0.0, ct)
    return e.select(below, rest, 0.0), e.select(below, 0.0, rest), e.select(above, ct, 0.0)


def convert(node: Node, cts: Cts) -> Cts:
    """Converted back between floats; nothing passes through an integer."""
    (x,), (ct,) = node.inputs, cts
    return (None,) if ct is None or not x.dtype.is_float else (e.convert(ct, x.dtype),)

"""Complex numbers of foreign models, as pairs of real tensors: no op of the graph has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from lstm_ir import ops as li
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.types import DType


@dataclass(frozen=True, eq=False)
class Complex:
    """complex numbers: `real` and `imag` have one shape and one type."""

    real: Value
    imag: Value

    @property
    def dtype(self) -> DType:
        """The type of either part."""
        return self.real.dtype

    def each(self, move: Callable[[Value], Value]) -> Complex:
        """Both parts by a function that is linear, and real."""
        return Complex(move(self.real), move(self.imag))


def literal(array: np.ndarray[Any, Any]) -> Complex:
    """The elements of an array of complex64 or complex128."""
    return Complex(constant(np.ascontiguousarray(array.real)), constant(np.ascontiguousarray(array.imag)))


def from_real(x: Value, dtype: DType) -> Complex:
    """Real numbers as complex ones whose parts are of a type."""
    return Complex(li.convert(x, dtype), li.zeros(x.shape, dtype))


def add(a: Complex, b: Complex) -> Complex:
    """a + b."""
    return Complex(a.real + b.real, a.imag + b.imag)


def subtract(a: Complex, b: Complex) -> Complex:
    """a - b."""
    return Complex(a.real - b.real, a.imag - b.imag)


def multiply(a: Complex, b: Complex) -> Complex:
    """a b."""
    return Complex(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)


def divide(a: Complex, b: Complex) -> Complex:
    """a / b; the divisor is scaled by its larger part, so that its square neither overflows nor vanishes."""
    larger = li.maximum(li.abs(b.real), li.abs(b.imag))
    scale = li.select(li.equal(larger, 0.0), 1.0, larger)
    c, d = b.real / scale, b.imag / scale
    square = (c * c + d * d) * scale
    top = multiply(a, Complex(c, -d))
    return Complex(top.real / square, top.imag / square)


def total(terms: Sequence[Complex]) -> Complex:
    """The sum of several."""
    return reduce(add, terms)


def conjugate(z: Complex) -> Complex:
    """The imaginary part with the other sign."""
    return Complex(z.real, -z.imag)


def exp(z: Complex) -> Complex:
    """e to the power z."""
    size = li.exp(z.real)
    return Complex(size * li.cos(z.imag), size * li.sin(z.imag))


def magnitude(z: Complex) -> Value:
    """|z|, scaled by the larger part."""
    a, b = li.abs(z.real), li.abs(z.imag)
    larger, smaller = li.maximum(a, b), li.minimum(a, b)
    ratio = smaller / li.select(li.equal(larger, 0.0), 1.0, larger)
    return larger * li.sqrt(1.0 + ratio * ratio)


def angle(z: Complex) -> Value:
    """The argument, in -pi..pi."""
    return li.atan2(z.imag, z.real)

"""Discrete Fourier transforms of a length that is a number, as products with their matrices.

X[k] = sum_t x[t] exp(-2 pi i k t / n). A row of 512 costs 263,000 multiplications and additions, as an LSTM's step of
128 units does; no length has to be a power of two, and the gradient is a product, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstm_ir import ops as li
from lstm_ir.importers.complex_numbers import Complex
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.types import DType

Array = np.ndarray[Any, Any]
LONGEST = 4096  # of a row: two matrices of 34 MiB


def rfft(x: Value, length: int) -> Complex:
    """The first length/2 + 1 terms of rows that are cut or filled with zeros to `length`."""
    wave = _waves(length)[:, : length // 2 + 1]
    return _from_real(fitted(x, length), wave.conj())


def irfft(z: Complex, length: int) -> Value:
    """Rows of `length` from their first length/2 + 1 terms, of which the first and, of an even length, the last are
    taken as real."""
    terms = length // 2 + 1
    z = z.each(lambda x: fitted(x, terms))
    counted = np.full(terms, 2.0)
    counted[0] = 1.0
    if length % 2 == 0:
        counted[-1] = 1.0
    wave = _waves(length)[:terms] * counted[:, None] / length
    return _product(z.real, wave.real) - _product(z.imag, wave.imag)


def fft(z: Complex) -> Complex:
    """The terms of rows of complex numbers."""
    return _from_complex(z, _waves(_length(z.real)).conj())


def ifft(z: Complex) -> Complex:
    """Rows of complex numbers from their terms."""
    length = _length(z.real)
    return _from_complex(z, _waves(length) / length)


def fitted(x: Value, length: int) -> Value:
    """The last axis cut to `length`, or filled with zeros behind."""
    found = _length(x)
    if found > length:
        return x[..., :length]
    before = [0] * x.rank
    return li.pad(x, before, [*before[1:], length - found]) if found < length else x


def _length(x: Value) -> int:
    found = x.shape[-1]
    if not isinstance(found, int):
        raise NodeRefusedError(f"rows of an open length ({found}) are not taken: give the size a number")
    return found


def _waves(length: int) -> Array:
    """exp(2 pi i k t / length), [k, t]. The product k t is taken modulo the length, so that no digit is lost."""
    if not 1 <= length <= LONGEST:
        raise NodeRefusedError(f"a length of {length} is not taken: 1 to {LONGEST} are")
    places = np.arange(length)
    return np.asarray(np.exp(2j * np.pi * (np.outer(places, places) % length) / length))


def _product(x: Value, matrix: Array) -> Value:
    inside = DType.f64 if x.dtype is DType.f64 else DType.f32
    return li.convert(li.matmul(li.convert(x, inside), constant(matrix.astype(inside.numpy))), x.dtype)


def _from_real(x: Value, wave: Array) -> Complex:
    return Complex(_product(x, wave.real), _product(x, wave.imag))


def _from_complex(z: Complex, wave: Array) -> Complex:
    a, b = _from_real(z.real, wave), _from_real(z.imag, wave)
    return Complex(a.real - b.imag, a.imag + b.real)

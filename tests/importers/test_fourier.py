"""Fourier transforms as products, beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.importers import complex_numbers, fourier
from lstm_ir.importers.complex_numbers import Complex
from lstm_ir.importers.refusals import NodeRefusedError


@pytest.mark.parametrize("length", [1, 2, 7, 8, 12])
@pytest.mark.parametrize("columns", [1, 5, 8])
def test_beside_numpy(columns: int, length: int, rng: np.random.Generator) -> None:
    """Rows that are shorter, longer and as long as the transform."""
    x, y = li.input("x", ("B", columns), "f64"), li.input("y", ("B", columns), "f64")
    terms, both, back = fourier.rfft(x, length), fourier.fft(Complex(x, y)), fourier.ifft(Complex(x, y))
    outputs = {
        "re": terms.real, "im": terms.imag, "rows": fourier.irfft(Complex(x, y), length), "fft_re": both.real,
        "fft_im": both.imag, "ifft_re": back.real, "ifft_im": back.imag,
    }  # fmt: skip
    a, b = rng.standard_normal((2, 3, columns))
    got = li.interpret(li.Graph("fourier", [x, y], outputs), x=a, y=b)
    want, whole, inverse = np.fft.rfft(a, length), np.fft.fft(a + 1j * b), np.fft.ifft(a + 1j * b)
    numpy = {
        "re": want.real, "im": want.imag, "rows": np.fft.irfft(a + 1j * b, length), "fft_re": whole.real,
        "fft_im": whole.imag, "ifft_re": inverse.real, "ifft_im": inverse.imag,
    }  # fmt: skip
    for name, value in numpy.items():
        np.testing.assert_allclose(got[name], value, atol=1e-13, err_msg=name)


def test_quotients_and_sizes_at_the_ends_of_the_range() -> None:
    """The square of the divisor would be infinite, or 0."""
    a, b = np.array([3 + 4j, 1 - 2j, 2j]), np.array([3e200 + 4e200j, -5e-200 + 1e-200j, 1 + 0j])
    quotient = complex_numbers.divide(complex_numbers.literal(a), complex_numbers.literal(b))
    size = complex_numbers.magnitude(complex_numbers.literal(np.append(b, 0j)))
    got = li.interpret(li.Graph("complex", [], {"re": quotient.real, "im": quotient.imag, "size": size}))
    np.testing.assert_allclose(got["re"] + 1j * got["im"], a / b, rtol=1e-14)
    np.testing.assert_allclose(got["size"], np.abs(np.append(b, 0j)), rtol=1e-14)


def test_what_is_refused() -> None:
    with pytest.raises(NodeRefusedError, match="open length"):
        fourier.rfft(li.input("x", (2, "N")), 8)
    with pytest.raises(NodeRefusedError, match="length of 4097 is not taken"):
        fourier.rfft(li.input("x", (2, 9)), 4097)

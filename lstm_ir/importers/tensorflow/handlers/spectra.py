"""Complex numbers and Fourier transforms; what other ops do to complex numbers stands in `complexes.py`."""

from __future__ import annotations

from lstm_ir.importers import complex_numbers as cn
from lstm_ir.importers import fourier
from lstm_ir.importers.complex_numbers import Complex
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.tensorflow.call import Call
from lstm_ir.importers.tensorflow.table import taken
from lstm_ir.ir.graph import Value
from lstm_ir.ops.primitive.broadcast import aligned

_LENGTH = "rows whose length is open, or longer than 4096"


@taken("RFFT", refused=_LENGTH)
def rfft(c: Call) -> Complex:
    """The first half of the terms of real rows."""
    return fourier.rfft(c.value(0), _length(c))


@taken("IRFFT", refused=_LENGTH, complex=True)
def irfft(c: Call) -> Value:
    """Real rows from the first half of their terms."""
    return fourier.irfft(c.thing(0, Complex), _length(c))


def _length(c: Call) -> int:
    found = c.numbers(1, "the length")
    if len(found) != 1:
        raise NodeRefusedError(f"it has {len(found)} lengths, not one")
    return found[0]


@taken("FFT", refused=_LENGTH, complex=True)
def fft(c: Call) -> Complex:
    """The terms of rows."""
    return fourier.fft(c.thing(0, Complex))


@taken("IFFT", refused=_LENGTH, complex=True)
def ifft(c: Call) -> Complex:
    """Rows from their terms."""
    return fourier.ifft(c.thing(0, Complex))


@taken("Complex")
def made(c: Call) -> Complex:
    """A complex number from its parts."""
    return Complex(*aligned("Complex", c.value(0), c.value(1)))


@taken("Real", complex=True)
def real(c: Call) -> Value:
    """The real part."""
    return c.thing(0, Complex).real


@taken("Imag", complex=True)
def imag(c: Call) -> Value:
    """The imaginary part."""
    return c.thing(0, Complex).imag


@taken("ComplexAbs", complex=True)
def complex_abs(c: Call) -> Value:
    """|z|."""
    return cn.magnitude(c.thing(0, Complex))


@taken("Angle", complex=True)
def angle(c: Call) -> Value:
    """The argument, in -pi..pi."""
    return cn.angle(c.thing(0, Complex))


@taken("Conj", complex=True)
def conjugate(c: Call) -> Complex:
    """The imaginary part with the other sign."""
    return cn.conjugate(c.thing(0, Complex))

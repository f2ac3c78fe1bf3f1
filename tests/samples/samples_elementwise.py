"""Samples of the elementwise ops; the expected values are Python's or NumPy's in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from sample import FLOATS, INTS, Array, Sample, bad_of, case, data, dtype, of

import lstm_ir as li

Oracle = Callable[..., Any]
SHAPES: tuple[tuple[int, ...], ...] = ((5, 7), (), (0, 3))
NODES, WEIGHTS = np.polynomial.legendre.leggauss(80)


def _erf(x: Array) -> Array:
    """2/sqrt(pi) times the integral of exp(-t^2) from 0 to x, by Gauss' quadrature."""
    t = np.multiply.outer(x, (NODES + 1) / 2)
    return np.asarray(x / math.sqrt(math.pi) * (np.exp(-t * t) @ WEIGHTS))


def _wrapped(meaning: Callable[[int, int], int]) -> Oracle:
    """Python integers, brought back to the type's range."""

    def run(a: Array, b: Array) -> Array:
        bits, signed = a.dtype.itemsize * 8, a.dtype.kind == "i"
        pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
        out = [meaning(x, y) % 2**bits for x, y in pairs]
        out = [v - 2**bits if signed and v >= 2 ** (bits - 1) else v for v in out]
        return np.array(out, a.dtype).reshape(a.shape)

    return run


def _quotient(a: int, b: int) -> int:
    return -1 if b == 0 else abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)


def _rest(a: int, b: int) -> int:
    return a if b == 0 else a - _quotient(a, b) * b


# op: builder, float oracle, element kinds, range of the floats
UNARY: dict[str, tuple[Callable[[li.Value], li.Value], Oracle, str, tuple[float, float]]] = {
    "negate": (li.negate, lambda x: 0 - x, "fi", (-2, 2)),
    "abs": (li.abs, lambda x: np.where(x < 0, 0 - x, x), "fi", (-2, 2)),
    "sign": (li.sign, lambda x: (x > 0) * 1 - (x < 0) * 1, "fi", (-2, 2)),
    "floor": (li.floor, lambda x: x // 1, "f", (-3, 3)),
    "ceil": (li.ceil, lambda x: -((-x) // 1), "f", (-3, 3)),
    "round_nearest_even": (li.round, np.round, "f", (-3, 3)),
    "exponential": (li.exp, lambda x: np.power(math.e, x), "f", (-3, 3)),
    "exponential_minus_one": (li.expm1, lambda x: 2 * np.sinh(x / 2) * np.exp(x / 2), "f", (-2, 2)),
    "log": (li.log, lambda x: np.log2(x) * math.log(2), "f", (0.1, 4)),
    "log_plus_one": (li.log1p, lambda x: 2 * np.arctanh(x / (2 + x)), "f", (-0.8, 3)),
    "erf": (li.erf, _erf, "f", (-3, 3)),
    "logistic": (li.logistic, lambda x: (1 + np.tanh(x / 2)) / 2, "f", (-6, 6)),
    "tanh": (li.tanh, lambda x: 1 - 2 / (np.exp(2 * x) + 1), "f", (-3, 3)),
    "sine": (li.sin, lambda x: np.exp(1j * x).imag, "f", (-6, 6)),
    "cosine": (li.cos, lambda x: np.exp(1j * x).real, "f", (-6, 6)),
    "sqrt": (li.sqrt, lambda x: x**0.5, "f", (0.1, 9)),
    "rsqrt": (li.rsqrt, lambda x: x**-0.5, "f", (0.1, 9)),
    "not": (li.logical_not, lambda x: x == 0 if x.dtype == bool else x ^ np.array(-1).astype(x.dtype), "ib", (0, 1)),
    "is_finite": (li.is_finite, lambda x: (x - x) == 0, "f", (-2, 2)),
}
BINARY: dict[str, tuple[Callable[[Any, Any], li.Value], Oracle, Oracle | None, str]] = {
    "add": (li.add, lambda a, b: a + b, _wrapped(lambda a, b: a + b), "fi"),
    "subtract": (li.subtract, lambda a, b: a - b, _wrapped(lambda a, b: a - b), "fi"),
    "multiply": (li.multiply, lambda a, b: a * b, _wrapped(lambda a, b: a * b), "fi"),
    "divide": (li.divide, lambda a, b: a / b, _wrapped(_quotient), "fi"),
    "remainder": (li.remainder, lambda a, b: a - b * np.trunc(a / b), _wrapped(_rest), "fi"),
    "maximum": (li.maximum, lambda a, b: np.where(a > b, a, b), _wrapped(max), "fi"),
    "minimum": (li.minimum, lambda a, b: np.where(a < b, a, b), _wrapped(min), "fi"),
    "power": (li.power, lambda a, b: np.exp(b * np.log(a)), None, "f"),
    "atan2": (li.atan2, lambda y, x: np.angle(x + 1j * y), None, "f"),
    "and": (li.logical_and, lambda a, b: a & b, _wrapped(lambda a, b: a & b), "ib"),
    "or": (li.logical_or, lambda a, b: a | b, _wrapped(lambda a, b: a | b), "ib"),
    "xor": (li.logical_xor, lambda a, b: a != b, _wrapped(lambda a, b: a ^ b), "ib"),
}
EXACT = {"negate", "abs", "sign", "floor", "ceil", "round_nearest_even", "maximum", "minimum", "select", "clamp"}
DOMAIN = {"power": (0.3, 3.0), "divide": (0.5, 3.0), "remainder": (0.5, 3.0)}


def _all(arrays: list[Array], per: int, oracle: Oracle) -> tuple[Array, ...]:
    return tuple(np.asarray(oracle(*arrays[i : i + per])) for i in range(0, len(arrays), per))


def _cases(op: str, kind: str, per: int, build: Oracle, oracle: Oracle, arrays: list[Array]) -> Sample:
    """One graph that applies the op to every group of `per` arrays."""
    tol = "exact" if op in EXACT else "rounded"

    def graph(*vs: li.Value) -> tuple[li.Value, ...]:
        return tuple(build(*vs[i : i + per]) for i in range(0, len(vs), per))

    return case(f"{op} {kind}", graph, arrays, lambda *a: _all(list(a), per, oracle), kind=tol)


def _dynamic(op: str, per: int, build: Oracle, oracle: Oracle, low: float, high: float) -> Iterator[Sample]:
    tol = "exact" if op in EXACT else "rounded"
    for T, B in ((11, 3), (0, 1)):
        arrays = [data(f"{op} {i}", "f32", (T, B, 64), low, high) for i in range(per)]
        shapes = [("T", "B", 64)] * per
        yield case(f"{op} f32 dynamic T={T}", build, arrays, oracle, shapes=shapes, kind=tol)


def _unary(op: str) -> Iterator[Sample]:
    build, oracle, kinds, (low, high) = UNARY[op]
    for k in (*(FLOATS if "f" in kinds else ()), *(INTS if "i" in kinds else ()), *(("i1",) if "b" in kinds else ())):
        yield _cases(op, k, 1, build, oracle, [data(op, k, s, low, high) for s in SHAPES])
    if "f" in kinds:
        yield from _dynamic(op, 1, build, oracle, low, high)


def _binary(op: str) -> Iterator[Sample]:
    build, oracle, integer, kinds = BINARY[op]
    low, high = DOMAIN.get(op, (-2.0, 2.0))
    for k in FLOATS if "f" in kinds else ():
        arrays = [data(f"{op} {i}", k, s, low, high) for s in SHAPES for i in range(2)]
        if op in ("divide", "remainder"):
            arrays[0] = (arrays[0].astype(np.float64) * -1.7).astype(arrays[0].dtype)
        yield _cases(op, k, 2, build, oracle, arrays)
    if integer is not None:
        for k in INTS:
            yield _cases(op, k, 2, build, integer, _integers(op, k))
    if "b" in kinds:
        yield _cases(op, "i1", 2, build, oracle, [data(f"{op} {i}", "i1", (5, 7)) for i in range(2)])
    if "f" in kinds:
        yield from _dynamic(op, 2, build, oracle, low, high)


def _integers(op: str, k: str) -> list[Array]:
    """Small ones, zeros on the right, and both ends of the range."""
    info = np.iinfo(dtype(k))
    low, high = int(info.min), int(info.max)
    a = [low, low, low, high, high, 0, 7, 7, 6, 5, high, low]
    b = [1, high, 0, 1, high, 0, 0, 3, 4, high, 2, low]
    if info.min < 0:
        a, b = [*a, low, -7, 7, -7, -1], [*b, -1, 3, -3, -3, 0]
    ends = [np.array(v, dtype(k)) for v in (a, b)]
    return [*ends, data(op, k, (5, 7)), data(f"{op} b", k, (5, 7))]


def _in(k: str, *shape: int | str) -> li.Value:
    return li.input("x", shape, k)


def _bad_binary(op: str, build: Callable[[Any, Any], li.Value]) -> None:
    dtypes = "lhs is i32, rhs i64"
    sizes, names = "sizes 3 and 5 do not broadcast", "sizes B and T do not broadcast"
    bad_of(op, (lambda: build(_in("i32", 3), _in("i64", 3)), dtypes))
    bad_of(op, (lambda: build(_in("i32", 3), _in("i32", 5)), sizes))
    bad_of(op, (lambda: build(_in("i32", "T"), _in("i32", "B")), names))


def _bad_unary(op: str, build: Callable[[li.Value], li.Value], kind: str) -> None:
    bad_of(op, (lambda: build(_in(kind, 3)), "takes .* elements, got"))


for _name, _one in UNARY.items():
    of(_name)(partial(_unary, _name))
    _bad_unary(_name, _one[0], "f32" if "b" in _one[2] else "i1")
for _name, _two in BINARY.items():
    of(_name)(partial(_binary, _name))
    _bad_binary(_name, _two[0])

"""Samples of shifts, comparisons, choices, conversions, and of special values everywhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
from sample import FLOATS, INTS, Array, Sample, bad_of, case, data, dtype, of

import lstm_ir as li

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 88, -88, 1e-30, 2.5, -3.5], np.float32)


@of(
    "exponential",
    "exponential_minus_one",
    "logistic",
    "tanh",
    "erf",
    "abs",
    "sign",
    "floor",
    "ceil",
    "round_nearest_even",
    "is_finite",
    "negate",
    "sqrt",
    "log",
    "maximum",
    "minimum",
)
def _special() -> Iterator[Sample]:
    """NaN, infinities, signed zeros, values at which exp ends: all from float64."""

    def build(x: li.Value) -> tuple[li.Value, ...]:
        return (
            li.exp(x),
            li.expm1(x),
            li.logistic(x),
            li.tanh(x),
            li.erf(x),
            li.abs(x),
            li.sign(x),
            li.floor(x),
            li.ceil(x),
            li.round(x),
            li.is_finite(x),
            li.negate(x),
            li.sqrt(x),
            li.log(x),
            li.maximum(x, 0.5),
            li.minimum(0.5, x),
        )

    def oracle(x: Array) -> tuple[Array, ...]:
        erf = np.array([math.erf(v) for v in x])
        low, high = np.where(x > 0.5, x, 0.5), np.where(x < 0.5, x, 0.5)
        return (
            np.exp(x),
            np.expm1(x),
            1 / (1 + np.exp(-x)),
            np.tanh(x),
            erf,
            np.abs(x),
            np.sign(x),
            np.floor(x),
            np.ceil(x),
            np.round(x),
            np.isfinite(x),
            -x,
            np.sqrt(x),
            np.log(x),
            np.where(np.isnan(x), x, low),
            np.where(np.isnan(x), x, high),
        )

    yield case("special values", build, [SPECIAL], oracle, smooth=False)


@of("power")
def _power_special() -> Iterator[Sample]:
    nan, inf = math.nan, math.inf
    a = np.array([0, 0, -2, -2, inf, nan, 1, 0, -1, 4, inf, -8], np.float32)
    b = np.array([0, -1, 3, 0.5, 0, 0, nan, 2, inf, -0.5, -1, 1], np.float32)
    want = np.array([1, inf, -8, nan, 1, 1, 1, 0, 1, 0.5, 0, -8])
    yield case("power special", li.power, [a, b], lambda *_: want, smooth=False)


@of("atan2")
def _atan2_special() -> Iterator[Sample]:
    """C's table: the sign of a zero counts; every octant, the axes, ratios beyond the range of f32."""
    nan, inf, pi = math.nan, math.inf, math.pi
    y = np.array([0, -0.0, 0, -0.0, 2, -2, inf, -inf, inf, 5, 5, -5, nan, 1, 0, inf, 1e-30, 1e30, -1e-30], np.float32)
    x = np.array([1, 1, -0.0, -1, 0, -0.0, inf, -inf, 3, inf, -inf, -inf, 1, nan, 0, nan, 1e30, -1e-30, -1e30], "f4")
    want = np.array([0, -0.0, pi, -pi, pi / 2, -pi / 2, pi / 4, -3 * pi / 4, pi / 2, 0, pi, -pi, nan, nan, 0, nan,
                     0, pi / 2, -pi])  # fmt: skip
    yield case("atan2 special", li.atan2, [y, x], lambda *_: want, smooth=False)
    turn = np.linspace(-3.14, 3.14, 997)
    for k in FLOATS:
        points = [(3.5 * f(turn)).astype(dtype(k)) for f in (np.sin, np.cos)]
        yield case(f"atan2 around {k}", li.atan2, points, lambda y, x: np.angle(x + 1j * y))


@of("shift_left", "shift_right_logical", "shift_right_arithmetic")
def _shifts() -> Iterator[Sample]:
    for k in INTS:
        info = np.iinfo(dtype(k))
        bits = info.bits
        a = np.repeat(np.array([1, 5, info.max, info.min, info.max // 3], dtype(k)), 6)
        b = np.tile(np.array([0, 1, bits - 1, bits, bits + 3, 3], dtype(k)), 5)
        if info.min < 0:
            a, b = np.append(a, dtype(k).type(-7)), np.append(b, dtype(k).type(-1))

        def oracle(x: Array, n: Array, bits: int = bits) -> tuple[Array, ...]:
            def out(values: list[int]) -> Array:
                signed = x.dtype.kind == "i"
                kept = [v % 2**bits for v in values]
                return np.array([v - 2**bits if signed and v >> (bits - 1) else v for v in kept], x.dtype)

            pairs = [(int(p), int(q), 0 <= int(q) < bits) for p, q in zip(x, n, strict=True)]
            sign = [v - 2**bits if v >> (bits - 1) else v for v in (p % 2**bits for p, _, _ in pairs)]
            left = out([p << q if ok else 0 for p, q, ok in pairs])
            logical = out([(p % 2**bits) >> q if ok else 0 for p, q, ok in pairs])
            arithmetic = out([s >> (q if ok else bits) for s, (_, q, ok) in zip(sign, pairs, strict=True)])
            return left, logical, arithmetic

        def build(x: li.Value, n: li.Value) -> tuple[li.Value, ...]:
            return (li.shift_left(x, n), li.shift_right_logical(x, n), li.shift_right_arithmetic(x, n))

        yield case(f"shifts {k}", build, [a, b], oracle)


@of("compare")
def _compare() -> Iterator[Sample]:
    def build(a: li.Value, b: li.Value) -> tuple[li.Value, ...]:
        return a < b, a <= b, a > b, a >= b, li.equal(a, b), li.not_equal(a, b)

    def oracle(a: Array, b: Array) -> tuple[Array, ...]:
        pairs = list(zip(a.ravel().tolist(), b.ravel().tolist(), strict=True))
        out = [
            [p < q for p, q in pairs],
            [p <= q for p, q in pairs],
            [p > q for p, q in pairs],
            [p >= q for p, q in pairs],
            [p == q for p, q in pairs],
            [p != q for p, q in pairs],
        ]
        return tuple(np.array(v, bool).reshape(a.shape) for v in out)

    for k in (*FLOATS, *INTS, "i1"):
        a, b = data("compare", k, (5, 7)), data("compare b", k, (5, 7))
        b[:2] = a[:2]
        yield case(f"compare {k}", build, [a, b], oracle)
    a, b = np.repeat(SPECIAL, 12), np.tile(SPECIAL, 12)
    yield case("compare special", build, [a, b], oracle)
    shapes: list[tuple[int | str, ...] | None] = [("T", 64), ("T", 64)]
    a, b = data("compare T", "f32", (0, 64)), data("compare T", "f32", (0, 64))
    yield case("compare T=0", build, [a, b], oracle, shapes=shapes)


@of("select")
def _select() -> Iterator[Sample]:
    for k in (*FLOATS, *INTS, "i1"):
        p, a, b = (data("select", "i1", (5, 7)), data("select a", k, (5, 7)), data("select b", k, (5, 7)))
        if k in FLOATS:
            b[p] = np.nan  # what is not taken does not matter
        yield case(
            f"select {k}", li.select, [p, a, b], lambda p, a, b: np.where(p, a, b), kind="exact", smooth=k not in FLOATS
        )
    p, a = data("select", "i1", (3,)), data("select a", "f64", (5, 3))
    yield case(
        "select broadcast", lambda p, a: li.select(p, a, 1.5), [p, a], lambda p, a: np.where(p, a, 1.5), kind="exact"
    )


@of("clamp")
def _clamp() -> Iterator[Sample]:
    for k in (*FLOATS, *INTS):
        lo, x, hi = (data(f"clamp {i}", k, (5, 7)) for i in range(3))

        def oracle(lo: Array, x: Array, hi: Array) -> Array:
            raised = np.where(x < lo, lo, x)
            return np.where(raised > hi, hi, raised)

        yield case(f"clamp {k}", li.clamp, [lo, x, hi], oracle, kind="exact", smooth=k == "f64")


@of("convert")
def _convert() -> Iterator[Sample]:
    for k in (*FLOATS, *INTS, "i1"):
        x = data("convert", k, (5, 7), -100, 100)
        yield case(
            f"convert {k} to floats",
            lambda x: tuple(li.convert(x, d) for d in ("f32", "f64")),
            [x],
            lambda x: (x.astype(np.float64), x.astype(np.float64)),
        )
        if k not in FLOATS:
            yield case(
                f"convert {k} to integers",
                lambda x: tuple(li.convert(x, d) for d in INTS),
                [x],
                lambda x: tuple(_wrap(x.astype(object), d) for d in INTS),
            )
    x = data("convert down", "f64", (5, 7), -100, 100)
    yield case("convert f64 to f16", lambda x: li.convert(x, "f16"), [x], lambda x: x, smooth=False)
    yield case("convert f64 to bf16", lambda x: li.convert(x, "bf16"), [x], lambda x: x, smooth=False)
    yield case("convert f64 to i1", lambda x: li.convert(li.floor(x / 50.0), "i1"), [x], lambda x: (x < 0) | (x >= 50))
    wild = np.array([0.0, -0.9, 1.9, -1.5, 200, -200, 3e9, -3e9, 1e20, np.inf, -np.inf, np.nan], np.float32)
    yield case(
        "convert saturates",
        lambda x: tuple(li.convert(x, d) for d in INTS),
        [wild],
        lambda x: tuple(_saturated(x.tolist(), d) for d in INTS),
    )


def _wrap(values: Array, k: str) -> Array:
    info = np.iinfo(dtype(k))
    out = [(int(v) - int(info.min)) % 2**info.bits + int(info.min) for v in values.ravel()]
    return np.array(out, dtype(k)).reshape(values.shape)


def _saturated(values: list[float], k: str) -> Array:
    info = np.iinfo(dtype(k))
    low, high = int(info.min), int(info.max)
    whole = [0 if math.isnan(v) else (high if v > 0 else low) if math.isinf(v) else int(v) for v in values]
    return np.array([min(max(v, low), high) for v in whole], dtype(k))


@of("bitcast_convert")
def _bitcast() -> Iterator[Sample]:
    pairs = ("f32", "u32"), ("u32", "f32"), ("i8", "u8"), ("f64", "i64"), ("f16", "bf16")
    for (a, b), shape in itertools.product(pairs, ((5, 7), ())):
        x = data("bitcast", a, shape, 1, 2)
        want = np.frombuffer(x.tobytes(), dtype(b)).reshape(shape)
        wide = want.astype(np.float64) if want.dtype.kind not in "iu" else want
        yield case(
            f"bitcast {a} {b} {shape}", lambda x, b=b: li.bitcast_convert(x, b), [x], lambda *_, w=wide: w, kind="exact"
        )


def _in(k: str, *shape: int | str) -> li.Value:
    return li.input("x", shape, k)


def _bad_shift(op: str, build: Callable[[li.Value, li.Value], li.Value]) -> None:
    bad_of(op, (lambda: build(_in("f32", 3), _in("f32", 3)), "takes integer"))


_bad_shift("shift_left", li.shift_left)
_bad_shift("shift_right_logical", li.shift_right_logical)
_bad_shift("shift_right_arithmetic", li.shift_right_arithmetic)
bad_of("compare", (lambda: li.compare(_in("f32", 3), _in("f32", 3), "XX"), "direction 'XX'"))
bad_of("select", (lambda: li.select(_in("i32", 3), _in("f32", 3), 1.0), "pred is i32"))
bad_of("select", (lambda: li.select(_in("i1", 3), _in("f32", 3), _in("f64", 3)), "on_true is f32"))
bad_of("clamp", (lambda: li.clamp(_in("f64", 3), _in("f32", 3), 1.0), "min is f64"))
bad_of("convert", (lambda: li.convert(_in("f32", 3), "f33"), "element type 'f33'"))
bad_of("bitcast_convert", (lambda: li.bitcast_convert(_in("f32", 3), "i64"), "different widths"))

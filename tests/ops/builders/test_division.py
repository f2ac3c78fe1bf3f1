"""Division rounded down and what it leaves, value for value as NumPy divides: zeros, infinities, ends of integers,
quotients beyond the digits of a float."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

Array = np.ndarray[Any, Any]
FLOATS, INTS = ("f16", "bf16", "f32", "f64"), ("i8", "u8", "i32", "u32", "i64")


@np.errstate(over="ignore")  # what f16 does not hold is infinite
def operands(kind: str, rng: np.random.Generator) -> tuple[Array, Array]:
    """Every pair of values at the edges of the dtype and of random ones."""
    dtype: Any = li.DType(kind).numpy
    if kind in INTS:
        info = np.iinfo(dtype)
        ends = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 5, 7]
        v = np.array(ends + [-1, -2, -3, -7] * (info.min < 0), dtype)
    else:
        edges = {"f16": [65504, 6.2e-5], "f64": [1.79e308, 2.3e-308]}.get(kind, [3.38e38, 1.2e-38])
        plain = [0, 1, 2, 3, 0.1, 0.3, 0.5, 2.5, 7, 1e4, 1e-3, 123456, 16777215, 0.7, 1 / 3, np.inf, *edges]
        drawn = [*rng.uniform(-50, 50, 20), *10 ** rng.uniform(-4, 4, 12)]
        v = np.array([*plain, *(-x for x in plain), *drawn, np.nan]).astype(dtype)
    return np.repeat(v, len(v)), np.tile(v, len(v))


def wide(a: Array) -> Array:
    """16-bit floats as f32."""
    return a.astype(np.float32) if a.dtype.itemsize == 2 else a


@np.errstate(all="ignore")
def expected(a: Array, b: Array) -> Array:
    """NumPy's; of 16-bit floats in f32, rounded once."""
    return np.asarray(np.floor_divide(wide(a), wide(b)).astype(a.dtype))


@np.errstate(all="ignore")
def what_is_left(a: Array, b: Array) -> Array:
    """NumPy's, but a where an integer b is 0; of 16-bit floats in f32, rounded once."""
    left = np.remainder(wide(a), wide(b)).astype(a.dtype)
    return wide(np.where(b == 0, a, left) if a.dtype.kind in "iu" else left)


@np.errstate(all="ignore")
def of_three_parts(a: Array, b: Array) -> Array:
    """Where modules give what is left: quotients of up to three times a float's digits, and no subnormal number."""
    if a.dtype.kind in "iu":
        return np.full(a.shape, True)
    digits = 52 if a.dtype.itemsize == 8 else 24
    few = ~(np.abs(wide(a) / wide(b)) >= 2.0 ** (3 * digits - 4)) & ~(np.abs(wide(a)) == np.inf)
    kind = np.finfo(wide(b).dtype)
    return np.asarray(few & (np.abs(wide(b)) > kind.tiny / kind.eps) | np.isnan(wide(a)) | (wide(b) == 0))


def compared(kind: str, target: str, rng: np.random.Generator) -> None:
    a, b = operands(kind, rng)
    x, y = li.input("x", ("N",), kind), li.input("y", ("N",), kind)
    g = li.Graph("division", [x, y], {"q": x // y, "left": x % y})
    want, left = wide(expected(a, b)), what_is_left(a, b)
    held = of_three_parts(a, b)
    for out in (li.interpret(g, x=a, y=b), li.compile(g, target)(x=a, y=b)):
        got = wide(out["q"])
        np.testing.assert_array_equal(wide(out["left"])[held], left[held])
        np.testing.assert_array_equal(got, want)
        if kind in FLOATS:
            numbers = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


@pytest.mark.parametrize("kind", [*FLOATS, *INTS])
def test_as_numpy_divides(kind: str, rng: np.random.Generator) -> None:
    compared(kind, "cpu", rng)


@pytest.mark.parametrize(("kind", "most"), [("f32", 70), ("f64", 150)])
def test_what_is_left_of_large_quotients(kind: str, most: int, rng: np.random.Generator) -> None:
    """Exact, however large the quotient; as C's fmod and as NumPy's."""
    dtype = np.float32 if kind == "f32" else np.float64
    b = (rng.uniform(1, 2, 4000) * 2.0 ** rng.integers(-20, 20, 4000) * rng.choice([-1, 1], 4000)).astype(dtype)
    a = (b * rng.uniform(-2, 2, 4000) * 2.0 ** rng.integers(-4, most, 4000)).astype(dtype)
    x, y = li.input("x", ("N",), kind), li.input("y", ("N",), kind)
    g = li.Graph("left", [x, y], {"c": li.remainder(x, y), "numpy": x % y})
    for out in (li.interpret(g, x=a, y=b), li.compile(g)(x=a, y=b)):
        np.testing.assert_array_equal(out["c"], np.fmod(a, b))
        np.testing.assert_array_equal(out["numpy"], np.remainder(a, b))


@pytest.mark.parametrize("kind", FLOATS)
def test_what_is_left_of_a_zero_has_its_sign(kind: str) -> None:
    dtype = li.DType.of(kind).numpy
    a, b = np.array([-0.0, 0.0, -4.0, 4.0, -0.0], dtype), np.array([3.0, 3.0, 2.0, 2.0, np.inf], dtype)
    x, y = li.input("x", ("N",), kind), li.input("y", ("N",), kind)
    g = li.Graph("left", [x, y], {"c": li.remainder(x, y)})
    for out in (li.interpret(g, x=a, y=b), li.compile(g)(x=a, y=b)):
        np.testing.assert_array_equal(np.signbit(out["c"]), [True, False, True, False, True])


@pytest.mark.parametrize("kind", ["f32", "bf16", "i32", "i64"])
def test_on_vulkan(kind: str, rng: np.random.Generator) -> None:
    need("vulkan")
    compared(kind, "vulkan", rng)


def test_operators_and_numbers_beside_them() -> None:
    x, i = li.input("x", (4,)), li.input("i", (4,), "i32")
    a, n = np.array([7, -7, 2.5, -0.5], "f4"), np.array([7, -7, 2, -1], "i4")
    outputs: dict[str, Any] = {
        "x // 2": x // 2,
        "2 // x": 2 // x,
        "i // -2": i // -2,
        "9 // i": 9 // i,
        "array": n // i,
    }
    out = li.interpret(li.Graph("g", [x, i], outputs), x=a, i=n)
    want = {"x // 2": a // 2, "2 // x": 2 // a, "i // -2": n // -2, "9 // i": 9 // n, "array": n // n}
    for name, value in want.items():
        np.testing.assert_array_equal(out[name], value)


def test_its_gradient_is_none() -> None:
    """As that of `floor`: 0 where zeros are asked for."""
    x = li.input("x", (3,))
    g = li.Graph("g", [x], {"loss": li.sum((x // 0.3) * 2.0 + 1.0 // x)})
    with pytest.raises(li.GradientError, match="does not influence"):
        li.grad(g, "loss", ["x"])
    slope = li.interpret(li.grad(g, "loss", ["x"], missing="zeros"), x=np.array([1, 0, -2], "f4"))["d_x"]
    np.testing.assert_array_equal(slope, [0, 0, 0])

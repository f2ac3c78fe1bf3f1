"""Rules of arithmetic keep every bit, for every dtype: zeros of both signs, NaN, unsigned numbers, ends of integers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.passes.pipeline import Pipeline

Array = np.ndarray[Any, Any]
FLOATS, INTEGERS = ("f16", "bf16", "f32", "f64"), ("i8", "u8", "i32", "u32", "i64")
DTYPES = (*FLOATS, *INTEGERS, "i1")


def _full(x: li.Value, number: float) -> li.Value:
    return li.full(x.shape, number, x.dtype)


FORMS: dict[str, Callable[[li.Value], li.Value]] = {
    "abs of a negated": lambda x: li.abs(-x),
    "abs of a negated, repeated": lambda x: li.abs(-li.broadcast_to(x, (2, *x.shape))),
    "abs twice": lambda x: li.abs(li.abs(x)),
    "negated twice": lambda x: li.negate(li.negate(x)),
    "plus 0": lambda x: x + _full(x, 0),
    "0 plus": lambda x: _full(x, 0) + x,
    "plus -0": lambda x: x + _full(x, -0.0),
    "abs plus 0": lambda x: li.abs(x) + _full(x, 0),
    "exp plus 0": lambda x: li.exp(x) + _full(x, 0),
    "cos plus 0": lambda x: li.cos(x) + _full(x, 0),
    "minus 0": lambda x: x - _full(x, 0),
    "0 minus": lambda x: _full(x, 0) - x,
    "times 1": lambda x: x * _full(x, 1),
    "over 1": lambda x: x / _full(x, 1),
    "plus a negated": lambda x: x + (-(x * x)),
    "a negated plus": lambda x: (-x) + x * x,
    "minus a negated": lambda x: x - (-x),
    "the larger of one": lambda x: li.maximum(x, x),
    "not twice": lambda x: li.logical_not(li.logical_not(x)),
    "within all": lambda x: li.clamp(-np.inf, x, np.inf),
    "chosen by not": lambda x: li.select(li.logical_not(x > _full(x, 0)), x, x * x),
    "chosen again": lambda x: li.select(x > _full(x, 0), li.select(x > _full(x, 0), x, x * x), x + x),
}


def ends(dtype: str) -> Array:
    kind = li.DType.of(dtype).numpy
    if dtype == "i1":
        return np.array([False, True])
    if dtype in INTEGERS:
        i = np.iinfo(kind)
        numbers = [0, 1, -1, 2, -2, 127, -127, 128, -128, 255, 256, 65519, 16777217, i.min, i.min + 1, i.max]
        return np.array([v for v in numbers if i.min <= v <= i.max], kind)
    floats = [0.0, -0.0, 0.5, -0.5, 1.5, -2.5, np.nan, np.inf, -np.inf, 1e-45, -1e-45, 6e-8, 65504, 65520, 3e38]
    with np.errstate(all="ignore"):
        return np.array([*floats, 127.5, -129, 256, 2.0**31, -(2.0**31) - 1, 1e19, 16777217], np.float64).astype(kind)


def same_bits(a: Array, b: Array) -> bool:
    assert a.dtype == b.dtype
    same = a.view(f"V{a.itemsize}") == b.view(f"V{b.itemsize}")
    return bool((same | ((a != a) & (b != b))).all())  # NaN payloads apart


def keeps_bits(graph: li.Graph, x: Array) -> bool:
    after = Pipeline.parse("canonicalize").run(graph).graph
    with np.errstate(all="ignore"):
        want, got = li.interpret(graph, {"x": x})["y"], li.interpret(after, {"x": x})["y"]
    return same_bits(want, got)


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    taken = 0
    for dtype in DTYPES:
        given = ends(dtype)
        x = li.input("x", given.shape, dtype)
        try:
            y = FORMS[form](x)
        except li.LstmIrError:
            continue  # the op does not take this dtype
        taken += 1
        assert keeps_bits(li.Graph("form", [x], {"y": y}), given), dtype
    assert taken


@pytest.mark.parametrize("dtype", DTYPES)
def test_conversions_of_conversions(dtype: str) -> None:
    given = ends(dtype)
    x = li.input("x", given.shape, dtype)
    for way in itertools.product(DTYPES, repeat=2):
        y = li.convert(li.convert(x, way[0]), way[1])
        assert keeps_bits(li.Graph("converted", [x], {"y": y}), given), way


@pytest.mark.parametrize("dtype", ["u8", "u32"])
def test_the_negative_of_an_unsigned_number_is_no_mirror(dtype: str) -> None:
    """-x of an unsigned number is 2^n - x, and its own absolute value."""
    given = ends(dtype)
    x = li.input("x", given.shape, dtype)
    exe = li.compile(li.Graph("mirror", [x], {"y": li.abs(-x)}))
    np.testing.assert_array_equal(exe(x=given)["y"], np.zeros_like(given) - given)

"""The one number that every element of a value is."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.emit.shapes import number_filled
from lstm_ir.ir.data import Data
from lstm_ir.ir.leaf import constant
from lstm_ir.ir.literals import splat
from lstm_ir.ir.types import DType, TensorType


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (li.constant(2.5), 2.5),
        (li.constant(np.full((3, 4), 7, np.int32)), 7),
        (li.full((2, "B"), True, "i1"), True),
        (li.transpose(li.reshape(li.full((6,), 3.0), (2, 3)), (1, 0)), 3.0),
        (li.convert(li.full((2,), 1.0), "bf16"), 1.0),
        (li.convert(li.constant(3), "f64"), 3.0),
        (li.convert(li.constant(0.1), "bf16"), None),  # is rounded
        (li.convert(li.constant(1.5), "i32"), None),
        (li.convert(li.constant(-0.0), "i32"), None),
        (li.convert(li.constant(math.nan), "i32"), None),
        (li.constant([1.0, 2.0]), None),
        (li.constant([0.0, -0.0]), None),
        (li.constant(np.zeros((0, 3), np.float32)), None),
        (li.weight("w", np.ones(3, np.float32)), None),
        (constant(Data(None, TensorType((3,), DType.f32), "0" * 64)), None),  # the hash alone
    ],
    ids=str,
)
def test_splat(value: li.Value, number: object) -> None:
    found = splat(value)
    assert found == number
    assert type(found) is type(number)


def test_bits_decide() -> None:
    assert math.isnan(splat(li.constant([math.nan, math.nan])))
    assert math.copysign(1, splat(li.full((3,), -0.0))) == -1


def test_only_a_repeated_scalar_becomes_a_fill() -> None:
    scalar, many = li.constant(2.0), li.constant(np.full(3, 2.0, np.float32))
    assert number_filled(li.full((3,), 2.0)) == 2
    assert [number_filled(v) for v in (scalar, many, li.reshape(li.full((3,), 2.0), (3, 1)))] == ([None] * 3)

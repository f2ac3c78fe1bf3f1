"""Whole numbers of NumPy's stand for Python's; truth values stand for none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.backends.run import runtime
from lstm_ir.serving.batcher import whole


def test_threads() -> None:
    same: Any = np.int64(runtime.threads())  # it may not change once workers run
    li.set_threads(same)
    assert type(runtime.threads()) is int
    with pytest.raises(li.DeviceError, match="got True"):
        li.set_threads(True)


def test_keys_of_random_numbers() -> None:
    numbers: tuple[Any, ...] = (7, np.int64(7), np.uint8(7))
    keys = [li.interpret(li.Graph("g", [], {"key": li.random_key(n, stream=n)}), {})["key"] for n in numbers]
    for key in keys[1:]:
        np.testing.assert_array_equal(key, keys[0])


def test_limits_of_a_batcher() -> None:
    whole("max_batch", np.int64(4))
    for bad in (np.int64(0), True, np.float32(4)):
        with pytest.raises(li.CallError, match=r"max_batch is .*; expected a whole number of 1 or more"):
            whole("max_batch", bad)

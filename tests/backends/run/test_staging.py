"""Host memory of a GPU's results, kept between calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.backends.run import transfer


class Allocator:
    """Counts what is allocated."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def allocate_buffer(self, memory: int, usage: int, size: int) -> object:
        self.sizes.append(size)
        return object()


def test_a_buffer_of_the_same_size_comes_back() -> None:
    made = Allocator()
    kept = transfer.Staging(made, 100)
    a, b = kept.take(40), kept.take(40)
    assert a is not b
    kept.give_back(a, 40)
    kept.give_back(b, 40)
    assert kept.take(40) is b
    assert kept.take(39) is not a
    large = kept.take(90)
    kept.give_back(large, 90)  # no room for `a` beside it
    assert kept.take(90) is large
    assert kept.take(40) is not a
    assert made.sizes == [40, 40, 39, 90, 40]


@pytest.mark.vulkan
def test_results_of_many_calls_are_their_own() -> None:
    need("vulkan")
    x = li.input("x", ("N", 3))
    exe = li.compile(li.Graph("g", [x], {"y": x + 1.0, "z": x * 2.0}), "vulkan")
    results: list[tuple[Any, Any]] = []
    for n in (4, 4, 2, 4, 0, 2):
        a = np.random.default_rng(len(results)).standard_normal((n, 3)).astype("f4")
        results.append((a, exe(x=a)))
    for a, got in results:
        np.testing.assert_array_equal(got["y"], a + np.float32(1))
        np.testing.assert_array_equal(got["z"], a * np.float32(2))

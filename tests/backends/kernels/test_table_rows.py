"""Rows of a table by a kernel: every kind of element and index, rows beyond the ends, what is left to the compiler."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import lstm_ir as li
from lstm_ir.api import prepare
from lstm_ir.backends.run.devices import resolve

ROWS, WIDTH, COUNT = 50, 33, 130  # of no whole vectors


def _kernels(graph: li.Graph) -> int:
    return len(re.findall(r"flow.dispatch @\w+::@(?:published_)?recurrence", prepare(graph, resolve("cpu")).text))


def _table(dtype: str, *shape: int) -> np.ndarray[Any, Any]:
    some = np.random.default_rng(5).integers(-100, 100, shape)
    return some.astype(li.DType(dtype).numpy) if dtype[0] == "i" else (some / 7).astype(li.DType(dtype).numpy)


@pytest.mark.parametrize("index", ["i8", "u8", "i32", "u32", "i64"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32"])
@pytest.mark.parametrize("names", [False, True])
def test_elements_and_indices(dtype: str, index: str, names: bool, rng: np.random.Generator) -> None:
    table = _table(dtype, ROWS, WIDTH)
    at = li.input("at", ("T", "B") if names else (COUNT, 3), index)
    graph = li.Graph("rows", [at], {"y": li.take(li.weight("t", table), at)})
    assert _kernels(graph) == 1
    exe = li.compile(graph)
    for count in (COUNT, 0, 1) if names else (COUNT,):
        some = rng.integers(0, ROWS, (count, 3)).astype(li.DType(index).numpy)
        np.testing.assert_array_equal(exe(at=some)["y"], table[some])


@pytest.mark.parametrize("shape", [(9, 1000), (300, 4, 5), (2, 3, 1, 17), (1, 64)])
@pytest.mark.parametrize("device", ["local-task", "local-sync"])
def test_tables_of_several_axes(shape: tuple[int, ...], device: str, rng: np.random.Generator) -> None:
    """One that the call brings, too."""
    table, at = li.input("t", shape), li.input("at", (300,), "i32")
    graph = li.Graph("rows", [table, at], {"y": li.take(table, at) * 2.0})
    given = rng.standard_normal(shape).astype(np.float32)
    some = rng.integers(0, shape[0], 300).astype(np.int32)
    np.testing.assert_array_equal(li.compile(graph, device=device)(t=given, at=some)["y"], given[some] * 2)


@pytest.mark.parametrize("index", ["i32", "i64", "u32"])
def test_computed_indices_beyond_the_ends(index: str) -> None:
    """A call with one is refused where the host looks, before the kernel; the kernel reads no other memory."""
    table = _table("f32", ROWS, WIDTH)
    x = li.input("x", ("N",), "f32")
    graph = li.Graph("rows", [x], {"y": li.take(li.weight("t", table), li.convert(x * 2.0, index))})
    exe = li.compile(graph)
    places = np.arange(ROWS // 2, dtype=np.float32)
    np.testing.assert_array_equal(exe(x=places)["y"], table[::2])
    for wrong in ([-30.0] if index != "u32" else []) + [25.0, 1e6]:
        with pytest.raises(li.ValueRangeError, match="indices"):
            exe(x=np.array([1.0, wrong], np.float32))


def test_what_is_left_to_the_compiler() -> None:
    """Few elements, another axis, elements of half a word, loops."""
    at = li.input("at", (COUNT,), "i32")
    table = li.weight("t", _table("f32", ROWS, WIDTH))
    narrow = li.weight("n", _table("f16", ROWS, WIDTH))
    few = li.input("few", (3,), "i32")
    for y, p in ((li.take(table, few), few), (li.take(table, at, 1), at), (li.take(narrow, at), at)):
        graph = li.Graph("rows", [p], {"y": y})
        assert _kernels(graph) == 0

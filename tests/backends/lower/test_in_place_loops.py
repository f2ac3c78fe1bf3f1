"""Updates in bodies of loops, before loops and after them: see test_in_place_updates.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lstm_ir as li

Array = np.ndarray[Any, Any]
Values = tuple[li.Value, ...]
Step = Callable[[li.Value, li.Value, li.Value, li.Value], tuple[li.Value, Values]]


def _gathered(h: li.Value, row: li.Value, j: li.Value, s: li.Value) -> tuple[li.Value, Values]:
    a = li.take(h, j, 0)
    b = li.scatter_add(h, j, row[:2])
    return b, (a, h, li.take(b, j, 0))


def _two_updates(h: li.Value, row: li.Value, j: li.Value, s: li.Value) -> tuple[li.Value, Values]:
    a = li.maximum(h, row)
    b = li.dynamic_update_slice(a, row[:2], [s, 0])
    return b, (a, li.scatter_add(a, j, row[1:3]), b)


def _shifted(h: li.Value, row: li.Value, j: li.Value, s: li.Value) -> tuple[li.Value, Values]:
    """A carry that is updated from itself."""
    b = li.dynamic_update_slice(h, li.maximum(row[:1], h[:1]), [s, 0])
    return li.dynamic_update_slice(b, h[1:2], [0, 0]), (b, h)


def _of_rows(h: li.Value, row: li.Value, j: li.Value, s: li.Value) -> tuple[li.Value, Values]:
    """What is scanned is updated."""
    a = li.scatter_add(row, j, h[:2])
    return li.maximum(h, li.take(a, j, 0)[:1]), (a, li.dynamic_update_slice(row, h[:2], [s, 0]))


STEPS: list[Step] = [_gathered, _two_updates, _shifted, _of_rows]


def _loop(step: Step, sizes: tuple[Any, ...], counted: bool) -> li.Graph:
    """A loop over `sizes` rows; `counted`: an update decides how many, which the host reads."""
    x, h = li.input("x", sizes, "f64"), li.input("h", sizes[1:], "f64")
    j, s = li.input("j", (2,), "i32"), li.input("s", (), "i32")
    a = li.maximum(h, 1.0)
    b = li.scatter_add(a, j, h[:2])
    c = li.dynamic_update_slice(a, h[1:2], [s, 0])
    count = None
    if counted:
        count = li.minimum(li.convert(li.sum(b[:1, :1]), "i32"), li.dim(x, 0))
    read = li.reverse(a, 0) * 2.0  # nothing but the loop needs it
    last, ys = li.scan(lambda v, row: step(v, row, j, s), read, x, count=count)
    d = li.scatter_add(last, j, last[1:3])
    outputs = {"a": a, "c": c, "last": last, "d": d} | {f"y{k}": y for k, y in enumerate(ys)}
    return li.Graph("loop", [x, h, j, s], outputs)


def _check(rng: np.random.Generator, sizes: tuple[int, ...], named: bool, **options: Any) -> None:
    rows = sizes[1]
    shape = ("T", rows, "C") if named else sizes
    graphs = {f"{step.__name__}_{counted}": _loop(step, shape, counted) for step in STEPS for counted in (False, True)}
    given: dict[str, Array] = {
        "x": rng.integers(0, 5, sizes).astype(np.float64),
        "h": rng.integers(0, 3, sizes[1:]).astype(np.float64),
        "j": rng.integers(0, 2, 2).astype(np.int32),
        "s": np.asarray(rng.integers(0, rows - 1), np.int32),
    }
    exe = li.compile(li.Program("loops", graphs), options=options)
    for name, g in graphs.items():
        got, want = exe.entries[name](given), li.interpret(g, given)
        for k, v in want.items():
            np.testing.assert_array_equal(got[k], v, err_msg=f"{k} of {name}, {sizes}")


@pytest.mark.parametrize("sizes", [(5, 4, 3)])
def test_loops(rng: np.random.Generator, sizes: tuple[int, ...]) -> None:
    _check(rng, sizes, False)


@pytest.mark.slow
@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("sizes", [(1, 4, 3), (9, 3, 5), (40, 7, 2)])
def test_more_loops(rng: np.random.Generator, sizes: tuple[int, ...], named: bool, kernels: bool) -> None:
    _check(rng, sizes, named, kernels=kernels)

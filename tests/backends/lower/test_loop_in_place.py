"""A loop without a kernel writes rows where they lie: no step copies what it does not write.

What IREE schedules is read, for a copy of a whole tensor; and numbers, of bodies that hand carries on as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device import need_target
from iree_stream import stream

import lstm_ir as li

WHOLE = re.compile(r"stream\.cmd\.copy .*, (%\w+) : !stream\.resource<\w+>\{\1\} -> !stream\.resource<\w+>\{\1\}")
T, B, H = 70, 3, 5
Rows = li.Value


def _plain(c: Any, x: Rows) -> Any:
    h = li.tanh(c[0] * 0.5 + x)
    return (h, c[1] + h), h * c[1]


def _held_before(c: Any, x: Rows) -> Any:
    """Rows are carries before the step, as gradients read them."""
    h = li.tanh(c[0] * 0.5 + x)
    return (h, c[1] + h), (c[0], li.reshape(c[1], (H, B)), li.transpose(c[0], (1, 0)))


def _swapped(c: Any, x: Rows) -> Any:
    return (c[1], c[0] + x), c[1]


def _kept(c: Any, x: Rows) -> Any:
    """One carry is never changed, and another made of both."""
    return (c[0], li.concat([li.slice(c[1], (0, 1), (B, H)), li.slice(c[0], (0, 0), (B, 1))], 1) + x), c[0]


def _mixed(c: Any, x: Rows) -> Any:
    """Carries of several dtypes in one tensor of bits."""
    n = li.convert(c[1], "i32") + 1
    return (li.tanh(c[0] + x), li.convert(n, "f32")), (n, c[0] > 0.0, li.convert(c[0], "f16"))


def _of_other_types(c: Any, x: Rows) -> Any:
    """Bits of a carry, a convert to its own type behind it, a pad of nothing."""
    bits = li.bitcast_convert(c[0], "i32")
    return (c[1] + x, c[0]), (bits, li.pad(c[1], (0, 0), (0, 0)), li.convert(bits, "i32"))


def _by_a_loop(c: Any, x: Rows) -> Any:
    """A loop of one step in the body hands on what it is given."""
    (a, b), y = li.scan(lambda d, r: ((d[1], d[0] + r), d[0]), c, li.reshape(x, (1, *x.shape)))
    return (a, b), y[0]


BODIES: dict[str, Callable[..., Any]] = {
    "plain": _plain, "held before": _held_before, "swapped": _swapped, "kept": _kept, "mixed": _mixed,
    "of other types": _of_other_types, "by a loop": _by_a_loop,
}  # fmt: skip


def _graph(body: str, steps: int | str, rows: int | str, *, ends: bool = False, reverse: bool = False) -> li.Graph:
    x, a, b = li.input("x", (steps, rows, H)), li.input("a", (rows, H)), li.input("b", (rows, H))
    until = (lambda c, y: li.max(li.abs(c[0]), (0, 1)) > 1e3) if ends else None
    carries, ys, *_ = li.scan(BODIES[body], (a, b), x, reverse=reverse, until=until)
    ys = ys if isinstance(ys, tuple) else (ys,)
    return li.Graph("g", [x, a, b], {"p": carries[0], "q": carries[1]} | {f"y{i}": y for i, y in enumerate(ys)})


def test_the_reader_finds_a_copy_of_all() -> None:
    line = "stream.cmd.copy %a[%c0], %b[%c0], {} : !stream.resource<external>{{%n}} -> !stream.resource<external>{{%n}}"
    assert WHOLE.findall(line.format("%n"))
    assert not WHOLE.findall(line.format("%c8"))


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("sizes", ["numbers", "names", "until"])
def test_no_step_copies_all(body: str, sizes: str) -> None:
    steps, rows = (T, B) if sizes != "names" else ("T", "B" if body not in ("kept", "held before") else B)
    _, call = stream(_graph(body, steps, rows, ends=sizes == "until"), kernels=False)
    assert "stream.cmd." in call
    assert not WHOLE.findall(call)


@pytest.mark.parametrize("H", [16, 1024])
def test_no_iteration_of_a_gpu_copies_all(H: int) -> None:
    """Kernels of several steps, and of one step each, that write over one tensor."""
    x, w = li.input("x", ("T", B, H)), li.weight("w", np.zeros((4 * H, H), np.float32))
    _, call = stream(li.Graph("g", [x], {"y": li.lstm(x, w, w)[0]}), "vulkan")
    assert "stream.cmd.dispatch" in call
    assert not WHOLE.findall(call)


@pytest.mark.parametrize("word", ["cpu", "vulkan"])
@pytest.mark.parametrize("body", BODIES)
def test_what_carries_are_handed_on_as(body: str, word: str, rng: np.random.Generator) -> None:
    """Several calls: what may run at the same time does not always."""
    need_target(word)
    given = {k: rng.standard_normal(s).astype(np.float32) for k, s in (("x", (T, B, H)), ("a", (B, H)), ("b", (B, H)))}
    for more in ({}, {"reverse": True}, {"ends": True}):
        g = _graph(body, "T", B, **more)
        exe, want = li.compile(g, word, options={"kernels": False}), li.interpret(g, given)
        for _ in range(5):
            got = exe(given)
            for name, array in want.items():
                np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("sizes", ["numbers", "names"])
def test_what_two_loops_start_from_stays(sizes: str, kernels: bool, rng: np.random.Generator) -> None:
    """A first carry that the caller lends, that two loops start from, and that is a result besides."""
    rows = 40_000  # of memory that is lent, not copied
    x, a = li.input("x", (T if sizes == "numbers" else "T", 1, H)), li.input("a", (rows, H))
    fixed = li.weight("fixed", rng.standard_normal((rows, H)).astype(np.float32))

    def body(c: Any, row: li.Value) -> Any:
        return (c[0] * 0.5 + row, c[1] + c[0]), None

    first, second = (li.scan(body, (a, start), x)[0] for start in (fixed, a))
    results = {"p": first[1], "q": second[1], "a_n": a + 0.0, "fixed_n": fixed + 0.0}
    g = li.Graph("g", [x, a], results)
    given = {"x": rng.standard_normal((T, 1, H)).astype(np.float32), "a": rng.standard_normal((rows, H)).astype("f4")}
    before, exe = given["a"].copy(), li.compile(g, options={"kernels": kernels})
    want = li.interpret(g, given)
    for _ in range(3):
        got = exe(given)
        np.testing.assert_array_equal(given["a"], before)
        for name, array in want.items():
            np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-4, err_msg=name)
